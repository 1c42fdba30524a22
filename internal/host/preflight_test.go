package host

import (
	"strings"
	"testing"
)

// Settings that can never work are refused. The error names the flag to change.
func TestCheckNames(t *testing.T) {
	for _, tt := range []struct {
		what   string
		change func(s *Settings)
		want   string
	}{
		{"as it is", func(*Settings) {}, ""},
		{"a colon", func(s *Settings) { s.Options.DataDir = "/data/a:b" }, "--data-dir=/data/a:b: no container could start"},
		{"a comma", func(s *Settings) { s.Options.DataDir = "/data/a,b" }, "comma"},
		{"a backslash", func(s *Settings) { s.Options.DataDir = `/data/a\b` }, "backslash"},
		{"blanks and others", func(s *Settings) { s.Options.DataDir = "/data/a b=%é[*" }, ""},
		{"a colon without containers", func(s *Settings) { s.Options.DataDir, s.Nodes = "/data/a:b", 0 }, ""},
		{"a colon, containers elsewhere", func(s *Settings) {
			s.Options.DataDir, s.Options.Node.ContainerRuntimeEndpoint = "/data/a:b", "unix:///run/c.sock"
		}, ""},
		{"not UTF-8", func(s *Settings) { s.Options.DataDir, s.Nodes = "/data/\xff", 0 }, `--data-dir="/data/\xff": the path is not UTF-8`},
		{"a kubeconfig that is not", func(s *Settings) { s.Kubeconfig = "/\xff" }, "--kubeconfig"},
		{"a host that is no node", func(s *Settings) { s.Options.NodeName = "my_host" }, "give --node-name"},
		{"one without a node", func(s *Settings) { s.Options.NodeName, s.Nodes = "my_host", 0 }, ""},
	} {
		s := keptSettings(t.TempDir())
		s.Nodes = 1
		tt.change(&s)
		if err := CheckNames(s); (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v", tt.what, err)
		}
	}
}
