package processes

import (
	"syscall"
	"testing"
)

// TestKillReport checks that lack of memory is the cause only if the log has a
// record about the process itself, or records were lost.
func TestKillReport(t *testing.T) {
	const other, own = "6,1,2,-;Killed process 7 (other) total-vm:1kB", "6,2,3,-;Out of memory: Killed process 77 (coracle) total-vm:9kB\n SUBSYSTEM=x"
	for name, tt := range map[string]struct {
		records []string
		end     error
		want    string
		whole   bool
	}{
		"of another":     {[]string{other}, syscall.EAGAIN, "", true},
		"of the process": {[]string{other, own}, syscall.EAGAIN, "Out of memory: Killed process 77 (coracle) total-vm:9kB", true},
		"records lost":   {[]string{"", other}, syscall.EAGAIN, "", false},
		"cannot be read": {nil, syscall.EPERM, "", false},
		"no records":     {nil, syscall.EAGAIN, "", true},
	} {
		next := 0
		got, whole := killReport(func(record []byte) (int, error) {
			if next == len(tt.records) {
				return 0, tt.end
			}
			next++
			if tt.records[next-1] == "" {
				return 0, syscall.EPIPE
			}
			return copy(record, tt.records[next-1]), nil
		}, 77)
		if got != tt.want || whole != tt.whole {
			t.Errorf("%s: %q, whole %v", name, got, whole)
		}
	}
}
