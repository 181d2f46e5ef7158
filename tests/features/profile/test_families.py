"""Every name that was seen gets the family that a person would give it."""

import pytest

from lstm_bench.features.profile.families import FAMILIES, families
from lstm_bench.model.profile import Part

#: As the profiler gave them, from cuDNN 9.19 and PyTorch 2.11 on an H200.
INPUT = "sm80_xmma_gemm_f32f32_f32f32_f32_tn_n_tilesize64x128x8_stage3_warpsize1x4x1_ffma_aligna4_alignc4_execute_kernel__5x_cublas"  # noqa: E501
RECURRENT = "_Z16gemmSN_TN_kernelIfLi128ELi16ELi2ELi4ELi8ELi9ELb0E30cublasGemvTensorStridedBatchedIKfES2_S0_IfEEv22cublasGemmSmallNParamsIT7_T8_T9_T_E"  # noqa: E501
GEMV = "_ZN8internal5gemvx6kernelIiiffffLb0ELb1ELb1ELb0ELi7ELb0E18cublasGemvParamsExIi30cublasGemvTensorStridedBatchedIKfES5_S3_IfEfEEENSt9enable_ifIXntT5_EvE4typeET11_"  # noqa: E501
HALF = "nvjet_sm90_hsh_64x8_64x16_4x2_h_bz_TNT"
CELL = "_Z15elemWiseRNNcellIfffL14cudnnRNNMode_t2EL18cudnnRNNBiasMode_t2EEviiiiibPKT_S4_PKT0_S4_S4_S4_S4_PS5_PS2_S9_S9_S9_18cudnnRNNClipMode_t21cudnnNanPropagation_tff"  # noqa: E501
STATIC = "_Z14RNN_persist_fpIfffL14cudnnRNNMode_t2ELb0ELi512ELi1ELi4ELi4ELi32ELi0ELi32ELi2ELi2ELi16ELi16ELi8ELi8ELi1ELi1ELi2ELi2ELi1ELb0ELi65536ELi0ELi0EEv15persist_fp_argsIffE"  # noqa: E501
SMALL = "_Z24RNN_blockPersist_fp_LSTMIfffLi128EEvPKT_PT0_S2_PS0_S2_S5_S5_PKS3_S2_S5_iiiiii18cudnnRNNClipMode_t21cudnnNanPropagation_tff"  # noqa: E501
CAST = "_ZN2at6native29vectorized_elementwise_kernelILi8EZNS0_24float16_copy_kernel_cudaERNS_18TensorIteratorBaseEEUlfE_St5arrayIPcLm2EEEEviT0_T1_"  # noqa: E501
FILL = "_ZN2at6native29vectorized_elementwise_kernelILi8ENS0_11FillFunctorIN3c104HalfEEESt5arrayIPcLm1EEEEviT0_T1_"  # noqa: E501

EIGEN = "Eigen::internal::EigenMetaKernel<Eigen::TensorEvaluator<Eigen::TensorAssignOp<{}>>>"
TORCH = "at::native::unrolled_elementwise_kernel<at::native::{}, std::array<char*, 2ul>>"

KERNELS = [
    (STATIC, "persistent"),
    (SMALL, "persistent"),
    ("RNN_persist_fp_000044", "persistent"),
    ("_Z18ampere_lstm_tile16ILi32ELi1EEv8params_t", "persistent"),
    ("lstm_recurrence", "persistent"),  # our own
    ("input_split", "repack"),
    (CELL, "cell"),
    ("_Z18persistRNN_addBiasIffEv14cudnnRNNMode_tiiPT_S2_", "cell"),
    ("_Z22persistRNN_init_negMaxIfEvPfi", "fill"),
    ("_Z23persistRNN_init_negZeroI6__halfEvPS0_i", "fill"),
    (CAST, "cast"),
    (FILL, "fill"),
    (TORCH.format("direct_copy_kernel_cuda, at::native::memory::LoadWithoutCast"), "copy"),
    (TORCH.format("direct_copy_kernel_cuda, at::native::memory::LoadWithCast<1>"), "cast"),
    (TORCH.format("tanh_kernel_cuda"), "cell"),
    ("at::native::(anonymous namespace)::kernel::lstm_cell_forward<float>", "cell"),
    ("at::native::(anonymous namespace)::CatArrayBatchedCopy<float>", "repack"),
    ("Sigmoid_GPU_DT_FLOAT_DT_FLOAT_kernel", "cell"),
    ("Tanh_GPU_DT_HALF_DT_HALF_kernel", "cell"),
    ("Mul_GPU_DT_FLOAT_DT_FLOAT_kernel", "cell"),
    ("AddV2_GPU_DT_FLOAT_DT_FLOAT_kernel", "cell"),
    ("tensorflow::BiasNHWCKernel<float>", "cell"),
    ("Cast_GPU_DT_FLOAT_DT_HALF_kernel", "cast"),
    (EIGEN.format("Eigen::TensorConversionOp<Eigen::half, float const>"), "cast"),
    (EIGEN.format("scalar_sum_op<float>, Eigen::TensorBroadcastingOp<int>"), "cell"),
    (EIGEN.format("Eigen::TensorStridingSlicingOp<float>"), "repack"),
    ("tensorflow::functor::SwapDimension1And2InTensor3UsingTiles<unsigned, 256>", "repack"),
    ("tensorflow::functor::ShuffleInTensor3Simple<float, 2, 1, 0>", "repack"),
    ("tensorflow::(anonymous namespace)::split_v_kernel<float, int, false>", "repack"),
    ("tensorflow::(anonymous namespace)::SplitOpKernel<float>", "repack"),
    ("tensorflow::(anonymous namespace)::concat_fixed_kernel<float, int>", "repack"),
    ("what_nobody_knows", "other"),
]

OPERATORS = [
    ("aten::mkldnn_rnn_layer", "whole layer"),
    ("ONNX LSTM", "whole layer"),
    ("ONNX DynamicQuantizeLSTM", "whole layer"),
    ("LSTMSequence", "whole layer"),
    ("aten::lstm", "other"),  # only calls others
    ("aten::sigmoid_", "cell"),
    ("aten::tanh", "cell"),
    ("aten::mul", "cell"),
    ("aten::_to_copy", "cast"),
    ("aten::copy_", "copy"),
    ("aten::t", "repack"),
    ("aten::unsafe_chunk", "repack"),
    ("aten::zeros", "fill"),
    ("aten::empty", "other"),
    ("Sigmoid", "cell"),
    ("Mul", "cell"),
    ("AddV2", "cell"),
    ("BiasAdd", "cell"),
    ("Split", "repack"),
    ("ConcatV2", "repack"),
    ("TensorListStack", "repack"),
    ("TensorListSetItem", "copy"),
    ("Cast", "cast"),
    ("While", "other"),
]


def part(name, count=1.0, kind="kernel"):
    return Part(name, kind, count, 1e-6)


def families_of(timesteps, *parts):
    return families([part(*each) for each in parts], timesteps)


@pytest.mark.parametrize(("name", "family"), KERNELS)
def test_a_kernel_has_its_family(name, family):
    assert families([part(name, 25.0)], 25) == [family]
    shown = Part("what a person reads", "kernel", 25.0, 1e-6, raw=name)
    assert families([shown], 25) == [family]


@pytest.mark.parametrize(("name", "family"), OPERATORS)
def test_an_operator_has_its_family(name, family):
    assert families([part(name, 25.0, "operator")], 25) == [family]


def test_copies_fills_and_phases_are_what_they_say():
    assert families_of(9, ("memset", 1, "fill"), ("device to device", 1, "copy")) == [
        "fill",
        "copy",
    ]
    phases = [(name, 9, "phase") for name in ("input product", "recurrent product", "cell", "x")]
    assert families_of(9, *phases) == ["input GEMM", "recurrent GEMM", "cell", "other"]


@pytest.mark.parametrize("recurrent", [RECURRENT, GEMV, HALF])
def test_products_are_told_apart_by_how_often_they_run(recurrent):
    assert families_of(25, (INPUT, 1), (recurrent, 25), (CELL, 25)) == [
        *("input GEMM", "recurrent GEMM", "cell")
    ]
    assert families_of(25, (recurrent, 25)) == ["recurrent GEMM"]  # the input is not projected
    assert families_of(25, (recurrent, 24), (INPUT, 2)) == ["recurrent GEMM", "input GEMM"]
    assert families_of(25, ("splitKreduce_kernel", 25), (recurrent, 25)) == ["recurrent GEMM"] * 2
    assert families_of(25, (INPUT, 1), ("splitKreduce_kernel", 25), (recurrent, 50)) == [
        *("input GEMM", "recurrent GEMM", "recurrent GEMM")
    ]


def test_a_name_that_holds_both_products_is_called_neither():
    assert families_of(25, (RECURRENT, 26)) == ["GEMM"]
    assert families_of(25, (RECURRENT, 200)) == [
        "GEMM"
    ]  # TensorFlow multiplies the inputs in every step
    assert (
        families_of(25, ("aten::linear", 1, "operator"), ("aten::addmm", 26, "operator"))[1]
        == "GEMM"
    )
    assert families_of(10, ("MatMul", 20, "operator")) == ["GEMM"]
    assert families_of(10, ("MatMul (oneDNN)", 20, "operator")) == ["GEMM"]
    assert families_of(10, ("Mul (oneDNN)", 10, "operator")) == ["cell"]


def test_two_products_at_every_step_are_told_apart_by_nothing():
    """TensorFlow's generic step on a CPU: both products are there, each under a name."""
    both = [(name, 50, "operator") for name in ("MatMul", "_FusedMatMul")]
    assert families_of(50, *both) == ["GEMM", "GEMM"]
    assert families_of(50, *both, ("MatMul_1", 1, "operator"))[2] == "input GEMM"


def test_one_timestep_does_not_tell_the_products_apart():
    assert families_of(1, (INPUT, 1), (RECURRENT, 1), (CELL, 1)) == ["GEMM", "GEMM", "cell"]


@pytest.mark.parametrize("timesteps", [1, 2, 25])
def test_beside_a_persistent_kernel_every_product_is_that_of_the_inputs(timesteps):
    assert families_of(timesteps, (INPUT, 1), (STATIC, 1)) == ["input GEMM", "persistent"]


def test_every_family_has_its_place():
    seen = {family for _, family in [*KERNELS, *OPERATORS]}
    assert seen | {"recurrent GEMM", "input GEMM", "GEMM"} == set(FAMILIES)
