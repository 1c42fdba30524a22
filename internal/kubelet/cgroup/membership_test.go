package cgroup

import "testing"

func TestMembership(t *testing.T) {
	for content, want := range map[string]string{
		"":                                   "",
		"0::/system.slice/kubelet.service\n": "/system.slice/kubelet.service",
		"0::/a:b":                            "/a:b",
		"0::/../outside\n":                   "",
		"5:cpu,cpuacct:/kube\n4:memory:/kube\n0::/other\n":                     "/kube",
		"5:cpu,cpuacct:/\n4:memory:/\n1:name=systemd:/kubelet.service\n0::/\n": "/kubelet.service",
		"5:cpu,cpuacct:/kube\n4:memory:/other\n1:name=systemd:/kube\n":         "",
		"5:cpu,cpuacct:/kube\n":  "",
		"1:name=systemd:/kube\n": "",
	} {
		if got := Membership(content); got != want {
			t.Errorf("%q: %q, want %q", content, got, want)
		}
	}
}
