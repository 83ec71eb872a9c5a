// StableHLO, as JAX prints it: every command takes it as it takes HLO, where jaxlib is installed.
module @softmax {
  func.func public @main(%x: tensor<16x64xf32>) -> tensor<16x64xf32> {
    %lowest = stablehlo.constant dense<0xFF800000> : tensor<f32>
    %most = stablehlo.reduce(%x init: %lowest) applies stablehlo.maximum across dimensions = [1] : (tensor<16x64xf32>, tensor<f32>) -> tensor<16xf32>
    %mosts = stablehlo.broadcast_in_dim %most, dims = [0] : (tensor<16xf32>) -> tensor<16x64xf32>
    %shifted = stablehlo.subtract %x, %mosts : tensor<16x64xf32>
    %powers = stablehlo.exponential %shifted : tensor<16x64xf32>
    %zero = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %sum = stablehlo.reduce(%powers init: %zero) applies stablehlo.add across dimensions = [1] : (tensor<16x64xf32>, tensor<f32>) -> tensor<16xf32>
    %sums = stablehlo.broadcast_in_dim %sum, dims = [0] : (tensor<16xf32>) -> tensor<16x64xf32>
    %0 = stablehlo.divide %powers, %sums : tensor<16x64xf32>
    return %0 : tensor<16x64xf32>
  }
}
