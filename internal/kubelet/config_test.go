package kubelet

import (
	"slices"
	"testing"

	"github.com/coracle-io/coracle/internal/kubelet/files"
)

// Containers do not see how hot the CPUs got.
func TestThermalThrottle(t *testing.T) {
	disk := &files.Memory{}
	c := Config{Files: disk}
	if got := c.thermalThrottle(); len(got) > 0 {
		t.Errorf("a machine without such folders has %q", got)
	}
	const root = "/sys/devices/system/cpu/"
	for _, folder := range []string{"cpu0/thermal_throttle", "cpu1/thermal_throttle", "cpu2/cache", "cpufreq"} {
		if err := disk.MkdirAll(root+folder, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if got, want := c.thermalThrottle(), []string{root + "cpu0/thermal_throttle", root + "cpu1/thermal_throttle"}; !slices.Equal(got, want) {
		t.Errorf("the folders are %q, want %q", got, want)
	}
}
