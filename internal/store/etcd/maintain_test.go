package etcd

import "testing"

func TestDecide(t *testing.T) {
	const mb = 1 << 20
	for _, tt := range []struct {
		name  string
		sizes sizes
		want  action
	}{
		{"new", sizes{file: mb, used: mb, quota: 8192 * mb, quiet: true}, nothing},
		{"small and mostly free", sizes{file: 16 * mb, used: mb, quota: 8192 * mb, quiet: true}, nothing},
		{"larger and mostly free", sizes{file: 40 * mb, used: 5 * mb, quota: 8192 * mb, quiet: true}, defragment},
		{"mostly free under load", sizes{file: 40 * mb, used: 5 * mb, quota: 8192 * mb}, nothing},
		{"so large that it would take long", sizes{file: 900 * mb, used: 300 * mb, quota: 8192 * mb, quiet: true}, nothing},
		{"large and used", sizes{file: 4000 * mb, used: 3900 * mb, quota: 8192 * mb}, nothing},
		{"near the quota with something free", sizes{file: 7000 * mb, used: 6000 * mb, quota: 8192 * mb}, defragment},
		{"near the quota and used", sizes{file: 7000 * mb, used: 6900 * mb, quota: 8192 * mb}, nothing},
		{"alarm", sizes{file: 8192 * mb, used: 8192 * mb, quota: 8192 * mb, alarm: true}, reclaim},
	} {
		if got := decide(tt.sizes); got != tt.want {
			t.Errorf("%s: %d, want %d", tt.name, got, tt.want)
		}
	}
}
