# usage: profile.sh name ; prints Speed and per-kernel times by kind
T=build/cuda/bin/weft_tests; export WEFT_CONTENT_SPEED=1
$T --gtest_brief=1 --gtest_filter=CudaContent.Speed | grep forward
CUDA_INJECTION64_PATH=$PWD/.carry/trace.so TRACE_TIMELINE=/tmp/timeline.txt TRACE_OUT=/tmp/totals.txt timeout 60 $T --gtest_brief=1 --gtest_filter=CudaContent.Speed >/dev/null 2>&1
sort -n /tmp/timeline.txt > /tmp/tl.txt; python3 .carry/bykind.py
