package main

import (
	"bytes"
	"debug/buildinfo"
	"errors"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"sigs.k8s.io/yaml"

	"github.com/coracle-io/coracle/cluster"
	"github.com/coracle-io/coracle/internal/host"
	"github.com/coracle-io/coracle/internal/version"
)

// execute runs a command line and returns its output, what report writes and
// the exit code.
func execute(t *testing.T, args ...string) (out, errors string, code int) {
	t.Helper()
	var stdout, stderr bytes.Buffer
	root := command()
	root.SetOut(&stdout)
	root.SetErr(&stdout)
	root.SetArgs(args)
	code = report(&stderr, root.ExecuteContext(t.Context()))
	return stdout.String(), stderr.String(), code
}

// TestEveryCommandHasHelp checks that each visible command says what it does and
// shows an example that starts with its name, and that each of its flags has a
// usage text.
func TestEveryCommandHasHelp(t *testing.T) {
	for _, cmd := range command().Commands() {
		if cmd.Hidden {
			continue
		}
		if cmd.Short == "" || strings.HasSuffix(cmd.Short, ".") || cmd.GroupID == "" {
			t.Errorf("%s: summary %q, group %q: want a summary without a full stop, and a group", cmd.Name(), cmd.Short, cmd.GroupID)
		}
		if cmd.DisableFlagParsing {
			continue // the help is the wrapped program's
		}
		for line := range strings.SplitSeq(cmd.Example, "\n") {
			if !strings.HasPrefix(line, "  coracle "+cmd.Name()) {
				t.Errorf("%s: example %q", cmd.Name(), line)
			}
		}
		checkExamples(t, cmd)
		cmd.Flags().VisitAll(func(f *pflag.Flag) {
			if f.Usage == "" && !f.Hidden {
				t.Errorf("%s: --%s has no usage text", cmd.Name(), f.Name)
			}
		})
		out, errors, code := execute(t, cmd.Name(), "--help")
		if code != 0 || errors != "" || !strings.Contains(out, cmd.Example) || strings.Contains(out, "(default [])") {
			t.Errorf("%s --help: code %d, %q, %q", cmd.Name(), code, errors, out)
		}
	}
}

// checkExamples checks that a command accepts the flags of its examples.
func checkExamples(t *testing.T, cmd *cobra.Command) {
	t.Helper()
	for line := range strings.SplitSeq(cmd.Example, "\n") {
		args := strings.Fields(line)
		if len(args) < 2 {
			t.Errorf("%s: no example", cmd.Name())
			return
		}
		fresh, _, err := command().Find(args[1:2])
		if err == nil {
			err = fresh.ParseFlags(args[2:])
		}
		if err != nil {
			t.Errorf("%s: %v", line, err)
		}
	}
}

// TestMistakes checks the exit code and the line of errors that a user can make
// on the command line. None of these commands reaches a cluster.
func TestMistakes(t *testing.T) {
	for _, tt := range []struct {
		args string
		code int
		want string
	}{
		{"upp", exitFailed, "coracle: unknown command \"upp\" for \"coracle\"\ncoracle: Did you mean this?\ncoracle:  up\n"},
		{"up now", exitFailed, `coracle: unexpected argument "now": coracle up takes none; the value of a flag follows =, such as --name=dev` + "\n"},
		{"up --scheduler false", exitFailed, `coracle: unexpected argument "false": coracle up takes none; the value of a flag follows =`},
		{"up --nodes=51", exitFailed, "coracle: --nodes=51: want the number of nodes on this machine, up to 50, or 0 for a control plane alone\n"},
		{"up --nodes=x", exitFailed, `coracle: invalid argument "x" for "--nodes" flag`},
		{"up --name=A", exitFailed, "coracle: --name=A: a lowercase RFC 1123 label"},
		{"up --node-name=A", exitFailed, "coracle: --node-name=A: a lowercase RFC 1123 subdomain"},
		{"up --bind-address=x", exitFailed, "coracle: --bind-address=x: want an IP address of this machine, or 0.0.0.0 for all\n"},
		{"up --secure-port=65536", exitFailed, "coracle: --secure-port=65536: want a port from 1 to 65535\n"},
		{"up --name=", exitFailed, "coracle: --name and --bind-address must not be empty: leave the flag out for its default\n"},
		{"up --timeout=0s", exitFailed, "coracle: --timeout=0s: want a duration, such as 2m\n"},
		{"up --v=x", exitFailed, `coracle: --v: log level "x": want a number from 0 to 10, or component=number` + "\n"},
		{"up --v=1,kubelt=2", exitFailed, "coracle: --v: "},
		{"up --colour=red", exitFailed, "coracle: unknown flag: --colour\n"},
		{"down --colour=red", exitFailed, "coracle: unknown flag: --colour\n"},
		{"down all others", exitFailed, "coracle: too many arguments: want coracle down [NAME]\n"},
		{"stop --name=no-such-cluster", exitNoCluster, "coracle: no cluster no-such-cluster is on this machine: start one with coracle up --name=no-such-cluster"},
		{"start no-such-cluster", exitNoCluster, "coracle: no cluster no-such-cluster is on this machine: start one with coracle up --name=no-such-cluster"},
		{"restart no-such-cluster", exitNoCluster, "coracle: no cluster no-such-cluster is on this machine"},
		{"start a b", exitFailed, "coracle: too many arguments: want coracle start [NAME]\n"},
		{"start a --name=b", exitFailed, "coracle: --name=b and the argument a: give one of the two\n"},
		{"start --timeout=0s", exitFailed, "coracle: --timeout=0s: want a duration, such as 2m\n"},
		{"version -o xml", exitFailed, "coracle: --output=xml: want json or yaml, or nothing for text\n"},
		{"status --name=no-such-cluster", exitNoCluster, "coracle: no cluster no-such-cluster is on this machine"},
		{"etcdctl --name", exitFailed, "coracle: --name: want the name of a cluster\n"},
		{"etcdctl --name=no-such-cluster get x", exitNoCluster, "coracle: no cluster no-such-cluster is on this machine: name it with coracle etcdctl --name=NAME\n"},
		{"scheduler --v=x", exitFailed, `coracle: --v: log level "x"`},
		{"proxy extra", exitFailed, `coracle: unexpected argument "extra": coracle proxy takes none` + "\n"},
		{"run control-plane --data-dir=/no/such/directory", exitFailed, "coracle: /no/such/directory: no cluster's settings are there\n"},
		{"undo", exitFailed, "coracle: no argument: want coracle undo REASON\n"},
		{"image load", exitFailed, "coracle: no argument: want coracle image load FILE...\n"},
		{"image pull", exitFailed, "coracle: no argument: want coracle image pull IMAGE...\n"},
		{"node", exitFailed, "coracle: want one of coracle node list, add and remove\n"},
		{"node drop", exitFailed, `coracle: unknown command "drop" for coracle node: want list, add or remove` + "\n"},
		{"node list --name=no-such-cluster", exitNoCluster, "coracle: no cluster no-such-cluster is on this machine"},
		{"node list -o xml", exitFailed, "coracle: --output=xml: want json or yaml, or nothing for text\n"},
		{"node add a b", exitFailed, "coracle: too many arguments: want coracle node add [NODE]\n"},
		{"node add A --zone=a_ --taints=b", exitFailed, "coracle: --taints[0]: b: want KEY=VALUE:EFFECT, with the effect NoSchedule, PreferNoSchedule or NoExecute\ncoracle: name of the node: A: a lowercase RFC 1123 subdomain"},
		{"node add --labels=kubernetes.io/x=y", exitFailed, `coracle: --labels["kubernetes.io/x"]: a kubelet may not give this label`},
		{"node add --timeout=0s", exitFailed, "coracle: --timeout=0s: want a duration, such as 2m\n"},
		{"node add --name=no-such-cluster", exitNoCluster, "coracle: no cluster no-such-cluster is on this machine"},
		{"node remove", exitFailed, "coracle: no argument: want coracle node remove NODE\n"},
		{"node remove a --name=no-such-cluster", exitNoCluster, "coracle: no cluster no-such-cluster is on this machine"},
		{"why", exitFailed, "coracle: no argument: want coracle why pod/NAME\n"},
		{"why pod a b", exitFailed, "coracle: too many arguments: want coracle why pod/NAME\n"},
	} {
		_, errors, code := execute(t, strings.Fields(tt.args)...)
		if code != tt.code || !strings.HasPrefix(errors, tt.want) {
			t.Errorf("%s: code %d, %q; want %d, %q", tt.args, code, errors, tt.code, tt.want)
		}
	}
}

// TestFlagsOfUp checks the defaults of up's flags, which of them are stored, and
// that paths become absolute.
func TestFlagsOfUp(t *testing.T) {
	parse := func(args ...string) *upFlags {
		t.Helper()
		f := newUpFlags()
		fs := pflag.NewFlagSet("up", pflag.ContinueOnError)
		f.bind(fs)
		if err := fs.Parse(args); err != nil {
			t.Fatal(err)
		}
		fs.Visit(func(flag *pflag.Flag) { f.set = append(f.set, flag.Name) })
		if err := f.check(); err != nil {
			t.Fatal(err)
		}
		return f
	}
	s := parse().settings
	if s.Options.Name != "coracle" || s.Nodes != 1 || s.Options.BindAddress != "0.0.0.0" || s.Options.LogLevels != "1" || s.Options.Ports.Secure != 0 || s.Options.Node.BundleDir != "" || len(s.Options.Etcd.Servers) != 0 {
		t.Errorf("the defaults are %+v", s)
	}
	work, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	f := parse("--name=dev", "--nodes=0", "--data-dir=data", "--bundle=b", "--kubeconfig=config", "--etcd-servers=https://a:1,https://b:2", "--foreground",
		"--container-runtime-endpoint=unix:///c.sock", "--cni-conf-dir=/cni", "--kubelet-arg=max-pods=5", "--etcd-arg=quota-backend-bytes=1", "-v=2")
	s = f.settings
	if f.settings.Options.DataDir != filepath.Join(work, "data") || s.Options.Node.BundleDir != filepath.Join(work, "b") || s.Kubeconfig != filepath.Join(work, "config") {
		t.Errorf("paths are %s, %s and %s", f.settings.Options.DataDir, s.Options.Node.BundleDir, s.Kubeconfig)
	}
	if s.Options.Name != "dev" || s.Nodes != 0 || len(s.Options.Etcd.Servers) != 2 || s.Options.Node.ContainerRuntimeEndpoint != "unix:///c.sock" || s.Options.Node.CNIConfDir != "/cni" || len(s.Options.KubeletArgs) != 1 || len(s.Options.EtcdArgs) != 1 || s.Options.LogLevels != "2" || !f.foreground {
		t.Errorf("the flags are %+v", f)
	}
	got := strings.Join(f.settingFlags(), " ")
	if want := "bundle cni-conf-dir container-runtime-endpoint etcd-arg etcd-servers kubeconfig kubelet-arg nodes v"; got != want {
		t.Errorf("stored are %s, want %s", got, want)
	}
}

func TestVersion(t *testing.T) {
	first, _, _ := execute(t, "--version")
	got, errors, code := execute(t, "version")
	if code != 0 || errors != "" || !strings.HasPrefix(got, first) || !strings.Contains(first, version.Kubernetes) {
		t.Errorf("code %d, %q, %q; want first what --version prints: %q", code, errors, got, first)
	}
	for _, output := range []string{"json", "yaml"} {
		got, errors, code := execute(t, "version", "-o", output)
		var v versions
		if err := yaml.Unmarshal([]byte(got), &v); err != nil || code != 0 || errors != "" || v.Coracle != version.Kubernetes || v.Kubernetes != version.Upstream {
			t.Errorf("%s: code %d, %q, %+v from %q (%v)", output, code, errors, v, got, err)
		}
	}
}

// Each part has the version of the module that it was built from.
func TestVersionsOfParts(t *testing.T) {
	dir := t.TempDir()
	own, err := os.Executable()
	if err == nil {
		err = os.Mkdir(filepath.Join(dir, "bin"), 0o700)
	}
	if err == nil {
		err = os.Symlink(own, filepath.Join(dir, "bin", "runc"))
	}
	if err != nil {
		t.Fatal(err)
	}
	built, err := buildinfo.ReadFile(own)
	if err != nil {
		t.Fatal(err)
	}
	v := versionsOf(&debug.BuildInfo{Deps: []*debug.Module{{Path: "go.etcd.io/etcd/api/v3", Version: "v1"}, {Path: "go.etcd.io/etcd/server/v3", Version: "v3.7.9"}}}, dir)
	if v.Etcd != "v3.7.9" || v.Bundle.Runc != built.Main.Version || v.Bundle.Containerd != "" {
		t.Errorf("the versions are %+v", v)
	}
	var text strings.Builder
	v.WriteText(&text)
	if !strings.Contains(text.String(), "\netcd         v3.7.9\ncontainerd   not in "+dir+"\n") {
		t.Errorf("the text is %s", text.String())
	}
}

func TestRepeatedErrorsAreWrittenOnce(t *testing.T) {
	var b strings.Builder
	if code := report(&b, errors.Join(errors.New("a"), errors.New("b\n\n"), errors.New("a"))); code != exitFailed || b.String() != "coracle: a\ncoracle: b\n" {
		t.Errorf("code %d, %q", code, b.String())
	}
}

func TestClusterNameOfEtcdctl(t *testing.T) {
	for args, want := range map[string]string{
		"": "coracle:", "get x": "coracle:get x", "--name=dev get": "dev:get", "--name dev get": "dev:get", "get --name=x": "coracle:get --name=x",
	} {
		name, rest, err := clusterName(strings.Fields(args))
		if got := name + ":" + strings.Join(rest, " "); err != nil || got != want {
			t.Errorf("%q: %s, %v; want %s", args, got, err, want)
		}
	}
}

// Only commands to an embedded etcd fail while the cluster is stopped, because
// it ends with the cluster.
func TestEtcdctlOfAStoppedCluster(t *testing.T) {
	embedded, external := host.Settings{}, host.Settings{}
	embedded.Options.Etcd = &cluster.EtcdOptions{}
	external.Options.Etcd = &cluster.EtcdOptions{Servers: []string{"https://10.0.0.1:2379"}}
	for _, tt := range []struct {
		args     string
		settings host.Settings
		want     bool
	}{
		{"get x", embedded, true},
		{"--cacert=ca endpoint status", embedded, true},
		{"get x", external, false},
		{"--endpoints=https://10.0.0.1:2379 get x", embedded, false},
		{"get x --endpoints https://10.0.0.1:2379", embedded, false},
		{"version", embedded, false},
	} {
		if got := needsEmbedded(tt.settings, strings.Fields(tt.args)); got != tt.want {
			t.Errorf("%s: %t, want %t", tt.args, got, tt.want)
		}
	}
}
