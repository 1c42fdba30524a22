package memory

import (
	"math"
	"testing"
	"testing/fstest"
)

func TestAvailable(t *testing.T) {
	const (
		meminfo = "MemTotal:        1000000 kB\nMemFree:  5 kB\n"
		v2      = "30 24 0:26 / /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate\n"
		hybrid  = "31 25 0:27 / /sys/fs/cgroup/unified rw shared:10 - cgroup2 cgroup2 rw\n" +
			"32 25 0:28 / /sys/fs/cgroup/memory rw shared:11 - cgroup cgroup rw,memory\n" +
			"33 25 0:29 / /sys/fs/cgroup/cpu,cpuacct rw shared:12 - cgroup cgroup rw,cpu,cpuacct\n"
		container = "32 25 0:28 /docker/abc /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n"
	)
	for _, tt := range []struct {
		what  string
		files map[string]string
		want  int64
	}{
		{"nothing is known", nil, math.MaxInt64},
		{"a machine without control groups", map[string]string{"proc/meminfo": meminfo}, 1000000 << 10},
		{"version 2 without a limit", map[string]string{
			"proc/meminfo": meminfo, "proc/self/cgroup": "0::/system.slice/coracle.service\n", "proc/self/mountinfo": v2,
			"sys/fs/cgroup/system.slice/coracle.service/memory.max": "max\n",
		}, 1000000 << 10},
		{"version 2", map[string]string{
			"proc/meminfo": meminfo, "proc/self/cgroup": "0::/system.slice/coracle.service\n", "proc/self/mountinfo": v2,
			"sys/fs/cgroup/system.slice/coracle.service/memory.max": "536870912\n",
		}, 512 << 20},
		{"version 2, a limit further up", map[string]string{
			"proc/meminfo": meminfo, "proc/self/cgroup": "0::/a/b/c\n", "proc/self/mountinfo": v2,
			"sys/fs/cgroup/a/b/c/memory.max": "max\n", "sys/fs/cgroup/a/memory.max": "268435456\n",
		}, 256 << 20},
		{"version 1 beside an empty version 2", map[string]string{
			"proc/meminfo": meminfo, "proc/self/cgroup": "5:cpu,cpuacct:/x\n4:memory:/user.slice\n0::/user.slice\n", "proc/self/mountinfo": hybrid,
			"sys/fs/cgroup/memory/memory.limit_in_bytes":            "9223372036854771712\n",
			"sys/fs/cgroup/memory/user.slice/memory.limit_in_bytes": "134217728\n",
		}, 128 << 20},
		{"version 1 without a limit", map[string]string{
			"proc/meminfo": meminfo, "proc/self/cgroup": "4:memory:/\n0::/\n", "proc/self/mountinfo": hybrid,
			"sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n",
		}, 1000000 << 10},
		{"in a container that shows its own group", map[string]string{
			"proc/meminfo": meminfo, "proc/self/cgroup": "4:memory:/docker/abc\n", "proc/self/mountinfo": container,
			"sys/fs/cgroup/memory/memory.limit_in_bytes": "67108864\n",
		}, 64 << 20},
		{"files that say nothing", map[string]string{
			"proc/meminfo": "MemTotal:\n", "proc/self/cgroup": "what\n\n4:memory\n", "proc/self/mountinfo": "is - this\n",
		}, math.MaxInt64},
	} {
		files := fstest.MapFS{}
		for name, text := range tt.files {
			files[name] = &fstest.MapFile{Data: []byte(text)}
		}
		if got := Available(files); got != tt.want {
			t.Errorf("%s: %d, want %d", tt.what, got, tt.want)
		}
	}
}
