# Two GPUs: m.sh. Build (75 s on 32 cores), CudaMulti* by suite, then the training table with controls on both cards.
T0=$SECONDS; say() { echo "[$((SECONDS-T0)) s] $*"; }
tar xf .carry/nl.tar -C /usr/include
python3 -c "import lzma,shutil; shutil.copyfileobj(lzma.open('.carry/english_novels_100.txt.xz'), open('/tmp/novels.txt','wb'))" &
mkdir -p /tmp/ctl; cp -r CMakeLists.txt CMakePresets.json src kernels models data configs train tests /tmp/ctl  # not git archive: no .git there
(cmake --preset cuda -DCMAKE_CUDA_ARCHITECTURES=90a-real && ninja -C build/cuda) > $OUT/build.log 2>&1 || { grep -n "error" $OUT/build.log | head; exit 1; }
say built; cp -r build/cuda/bin /tmp/bin; T=build/cuda/bin/weft_tests
(cd /tmp/ctl && patch -p0 < tests/tools/content_controls.patch && cmake --preset cuda -DCMAKE_CUDA_ARCHITECTURES=90a-real -DWEFT_TESTS=OFF > /dev/null && nice ninja -j 16 -C build/cuda > /tmp/ctl.log 2>&1; say controls $?) &
for s in CudaMultiTraining 'CudaMultiComm*:CudaMulti/CudaMultiSharded' 'CudaMultiRanks:CudaMulti/CudaMultiRanksByWay:CudaMultiHosts'; do
  f=$(echo "$s" | sed 's/\([^:]*\)/\1*/g; s/\*\*/*/g'); timeout 150 $T --gtest_brief=1 --gtest_filter="$f" > /tmp/m.log 2>&1; say "$s rc $?"; tail -n 4 /tmp/m.log; done
wait
python3 tests/tools/content_table.py /tmp/bin /tmp/novels.txt /tmp/table --controls /tmp/ctl/build/cuda/bin --gpus 0,1 --steps 250 --copy-steps 3000 --seconds ${TABLE:-250} > $OUT/table.log 2>&1
cp /tmp/table/table.md /tmp/table/runs.jsonl $OUT/; say table
