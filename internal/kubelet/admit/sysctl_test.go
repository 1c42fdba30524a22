package admit

import (
	"testing"

	v1 "k8s.io/api/core/v1"
)

// TestSysctls checks that a pod sets kernel settings of its own namespaces alone,
// and of these only the safe ones and those that the node's operator allows.
func TestSysctls(t *testing.T) {
	allowed := []string{"net.core.somaxconn", "kernel.msg*"}
	for _, test := range []struct {
		name string
		spec v1.PodSpec
		want bool // admitted
	}{
		{"net.ipv4.tcp_syncookies", v1.PodSpec{}, true},
		{"net/ipv4/tcp_syncookies", v1.PodSpec{}, true},
		{"net.ipv4.tcp_slow_start_after_idle", v1.PodSpec{}, true},
		{"net.ipv4.tcp_notsent_lowat", v1.PodSpec{}, true},
		{"net.ipv4.tcp_syncookies", v1.PodSpec{HostNetwork: true}, false},
		{"kernel.shm_rmid_forced", v1.PodSpec{HostNetwork: true}, true},
		{"kernel.shm_rmid_forced", v1.PodSpec{HostIPC: true}, false},
		{"net.core.somaxconn", v1.PodSpec{}, true},
		{"net.core.somaxconn", v1.PodSpec{HostNetwork: true}, false},
		{"kernel.msgmax", v1.PodSpec{}, true},
		{"kernel.msgmax", v1.PodSpec{HostIPC: true}, false},
		{"net.ipv4.ip_forward", v1.PodSpec{}, false},
		{"net.ipv4.conf.all.route_localnet", v1.PodSpec{}, false},
		{"kernel.core_pattern", v1.PodSpec{}, false},
		{"vm.overcommit_memory", v1.PodSpec{}, false},
		{"net.ipv4.tcp_syncookies/../ip_forward", v1.PodSpec{}, false},
		{"../kernel/core_pattern", v1.PodSpec{}, false},
	} {
		pod := &v1.Pod{Spec: test.spec}
		pod.Spec.SecurityContext = &v1.PodSecurityContext{Sysctls: []v1.Sysctl{{Name: "net.ipv4.ip_unprivileged_port_start", Value: "0"}, {Name: test.name, Value: "1"}}}
		if test.spec.HostNetwork {
			pod.Spec.SecurityContext.Sysctls = pod.Spec.SecurityContext.Sysctls[1:]
		}
		if r := Sysctls(pod, allowed); (r == nil) != test.want {
			t.Errorf("%s with %+v: %v, want admission %t", test.name, test.spec, r, test.want)
		}
	}
}
