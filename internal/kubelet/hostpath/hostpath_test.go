package hostpath

import "testing"

func TestPaths(t *testing.T) {
	cluster := New("/data/kubelet", "/data/logs/pods", "/data/logs/containers")
	for name, c := range map[string]struct {
		in          Directories
		usual, real string
	}{
		"root":                {cluster, "/var/lib/kubelet", "/data/kubelet"},
		"below the root":      {cluster, "/var/lib/kubelet/plugins/x/csi.sock", "/data/kubelet/plugins/x/csi.sock"},
		"logs":                {cluster, "/var/log/pods", "/data/logs/pods"},
		"a log":               {cluster, "/var/log/pods/a_b_c/main/0.log", "/data/logs/pods/a_b_c/main/0.log"},
		"links":               {cluster, "/var/log/containers", "/data/logs/containers"},
		"another name":        {cluster, "/var/lib/kubelet2/x", "/var/lib/kubelet2/x"},
		"above":               {cluster, "/var/lib", "/var/lib"},
		"all logs":            {cluster, "/var/log", "/var/log"},
		"elsewhere":           {cluster, "/etc/kubernetes", "/etc/kubernetes"},
		"nothing":             {cluster, "", ""},
		"relative":            {cluster, "var/lib/kubelet", "var/lib/kubelet"},
		"a kubelet alone":     {New(Root+"/", PodLogs, LogLinks), "/var/lib/kubelet/pods", "/var/lib/kubelet/pods"},
		"none":                {Directories{}, "/var/lib/kubelet/pods", "/var/lib/kubelet/pods"},
		"root only":           {New("/data/kubelet", PodLogs, LogLinks), "/var/log/pods/a", "/var/log/pods/a"},
		"below the usual one": {New("/var/lib/kubelet/a", PodLogs, LogLinks), "/var/lib/kubelet/pods", "/var/lib/kubelet/a/pods"},
		"above the usual one": {New("/var/lib", PodLogs, LogLinks), "/var/lib/kubelet/pods", "/var/lib/pods"},
	} {
		if got := c.in.Real(c.usual); got != c.real {
			t.Errorf("%s: the real path of %s is %s, want %s", name, c.usual, got, c.real)
		}
		if got := c.in.Usual(c.real); got != c.usual {
			t.Errorf("%s: the usual path of %s is %s, want %s", name, c.real, got, c.usual)
		}
	}
	if got := cluster.Real("/var//lib/kubelet/./pods/"); got != "/data/kubelet/pods" {
		t.Errorf("a path that is not clean is %s", got)
	}
	for _, real := range []string{"/data/kubelet/pods", "/var/lib/kubelet/a/pods"} {
		in := cluster
		if real != "/data/kubelet/pods" {
			in = New("/var/lib/kubelet/a", PodLogs, LogLinks)
		}
		if got := in.Real(real); got != real {
			t.Errorf("the real path %s becomes %s", real, got)
		}
	}
	if got := cluster.Usual("/var/lib/kubelet/pods"); got != "/var/lib/kubelet/pods" {
		t.Errorf("the usual path becomes %s", got)
	}
}

// A part of a directory is in the real directory that is the nearest above it.
func TestParts(t *testing.T) {
	cluster := New("/data/kubelet", "/data/logs/pods", "/data/logs/containers")
	for _, test := range []struct {
		in         Directories
		dir, sub   string
		real, rest string
	}{
		{cluster, "/var/log", "pods/", "/data/logs/pods", ""},
		{cluster, "/var/log", "pods/a/0.log", "/data/logs/pods", "a/0.log"},
		{cluster, "/", "var/lib/kubelet/plugins/x", "/data/kubelet", "plugins/x"},
		{cluster, "/data/kubelet", "pods/x", "/data/kubelet", "pods/x"},
		{cluster, "/data", "kubelet/pods", "/data", "kubelet/pods"},
		{cluster, "/var/log/", "apt", "/var/log/", "apt"},
		{cluster, "/var/log/", "", "/var/log/", ""},
		{cluster, "/var/lib", "kubelet2", "/var/lib", "kubelet2"},
		{Directories{}, "/var/log", "pods/a", "/var/log", "pods/a"},
		{New("/var/lib/kubelet/a", PodLogs, LogLinks), "/var/lib", "kubelet/pods", "/var/lib/kubelet/a", "pods"},
		{New("/var/lib/kubelet/a", PodLogs, LogLinks), "/var/lib", "kubelet/a/pods", "/var/lib", "kubelet/a/pods"},
	} {
		if real, rest := test.in.Part(test.dir, test.sub); real != test.real || rest != test.rest {
			t.Errorf("%s of %s is %q of %s, want %q of %s", test.sub, test.dir, rest, real, test.rest, test.real)
		}
	}
}
