package host

import (
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/pflag"
	"golang.org/x/sys/unix"
)

// readConfig reads a configuration with these fields.
func readConfig(t *testing.T, fields string) (*Config, error) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "cluster.yaml")
	if err := os.WriteFile(path, []byte("apiVersion: coracle.io/v1alpha1\nkind: Cluster\n"+fields), 0o600); err != nil {
		t.Fatal(err)
	}
	return ReadConfig(path)
}

// Each flag has a field in configuration files, which sets what the flag sets, and
// which the guide names.
func TestEachFlagHasAField(t *testing.T) {
	guide, err := os.ReadFile("../../docs/guide/config-file.md")
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for i, f := range new(Settings).flags() {
		flagValue, fieldValue := "/a", "/a"
		switch {
		case f.num != nil:
			flagValue, fieldValue = "7", "7"
		case f.on != nil:
			flagValue, fieldValue = "true", "true"
		case f.off != nil:
			flagValue, fieldValue = "false", "false"
		case f.pairs != nil:
			flagValue, fieldValue = "a=1", `{a: "1"}`
		case f.list != nil || f.args != nil:
			flagValue, fieldValue = "a", "[a]"
		}
		want := NewSettings()
		fs := pflag.NewFlagSet("up", pflag.ContinueOnError)
		want.BindFlags(fs)
		if err := fs.Parse([]string{"--" + f.name + "=" + flagValue}); err != nil {
			t.Fatal(err)
		}
		fields := fieldValue
		for _, key := range slices.Backward(strings.Split(f.key, ".")) {
			fields = "{" + key + ": " + fields + "}"
		}
		c, err := readConfig(t, strings.Trim(strings.TrimSuffix(fields, "}"), "{")+"\n")
		if err != nil {
			t.Errorf("%s: %v", f.key, err)
			continue
		}
		got := NewSettings()
		set := c.Apply(&got, nil)
		if !slices.Equal(set, []string{f.name}) || !reflect.DeepEqual(got.flags()[i].stored(), want.flags()[i].stored()) {
			t.Errorf("field %s sets %q to %q, want %q to %q", f.key, set, got.flags()[i].stored(), f.name, want.flags()[i].stored())
		}
		if f.key == "" || seen[f.key] || !strings.Contains(string(guide), "`"+f.key+"`") || !strings.Contains(string(guide), "`--"+f.name+"`") {
			t.Errorf("flag %s has the field %q, which is missing, not the only one of its name, or not in the guide", f.name, f.key)
		}
		seen[f.key] = true
	}
}

// stored returns the value that a flag has set.
func (f flag) stored() string {
	if f.args != nil {
		return strings.Join(*f.args, "\n")
	}
	return f.value()
}

func TestFlagsOverrideTheConfiguration(t *testing.T) {
	c, err := readConfig(t, `
nodes: 0
logLevels: "3"
nodeName:
apiserverArgs: [anonymous-auth=false, audit-policy-file=policy.yaml, --etcd-prefix=/x]
kubeletArgs: [max-pods=5]
kubeconfig: here.yaml
`)
	if err != nil {
		t.Fatal(err)
	}
	s := NewSettings()
	s.Options.LogLevels = "5"
	s.Options.APIServerArgs = []string{"--anonymous-auth", "etcd-prefix-"}
	set := c.Apply(&s, []string{"v", "apiserver-arg"})
	slices.Sort(set)
	if want := []string{"apiserver-arg", "kubeconfig", "kubelet-arg", "nodes", "v"}; !slices.Equal(set, want) {
		t.Errorf("set are %q, want %q", set, want)
	}
	if want := []string{"audit-policy-file=" + filepath.Join(c.dir, "policy.yaml"), "--anonymous-auth", "etcd-prefix-"}; !slices.Equal(s.Options.APIServerArgs, want) {
		t.Errorf("arguments %q, want %q", s.Options.APIServerArgs, want)
	}
	if s.Options.LogLevels != "5" || s.Nodes != 0 || s.Options.NodeName != "" || s.Kubeconfig != filepath.Join(c.dir, "here.yaml") {
		t.Errorf("settings %+v", s)
	}
}

func TestWrongConfigurations(t *testing.T) {
	for fields, want := range map[string]string{
		"nodse: 1":                                  "nodse: unknown field: want one of apiVersion, apiserverArgs, ",
		"simulatedNodes.count: 1":                   "simulatedNodes.count: unknown field: ",
		"nodes: 1.5":                                "nodes: want a whole number",
		"simulatedNodes: 3":                         "simulatedNodes: want the fields count, labels, resources, zones",
		"simulatedNodes: {labels: [a]}":             "simulatedNodes.labels: want names with values",
		"simulatedNodes: {labels: {a: {}}}":         `simulatedNodes.labels["a"]: want text; put it in quotes`,
		"scheduler: 1":                              "scheduler: want true or false",
		"logLevels: 2":                              "logLevels: want text; put it in quotes",
		"controllers: all":                          "controllers: want a list",
		"controllers: [a, 1]":                       "controllers[1]: want text; put it in quotes",
		"name: ''":                                  "name: is empty: leave it out for its default",
		"simulatedNodes: {labels: {release: 1.10}}": `simulatedNodes.labels["release"]: want text; put it in quotes`,
		"simulatedNodes: {resources: {pods: true}}": `simulatedNodes.resources["pods"]: want text; put it in quotes`,
		"registries: {mirors: {}}":                  `registries: unknown field "mirors"`,
		"images: [/none]":                           "images[0]: stat /none: no such file or directory",
		"manifests: [none.yaml]":                    "manifests[0]: none.yaml: no such file or directory",
		"nodes: 1\nnodes: 0":                        "want YAML: ",
		"nodes: 1\n---\nnodes: 0":                   "want one YAML document",
		"nodes: x\nscheduler: x":                    "nodes: want a whole number, or a list of nodes\nscheduler: want true or false",
	} {
		if _, err := readConfig(t, fields); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%s: error %v, want %q", fields, err, want)
		}
	}
}

// An error about a flag that the file has set names its field instead.
// A pipe is refused: nobody may ever write to it.
func TestConfigurationsAreFiles(t *testing.T) {
	pipe := filepath.Join(t.TempDir(), "pipe.yaml")
	if err := unix.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := ReadConfig(pipe); err == nil || err.Error() != "want a file" {
		t.Errorf("configuration: %v", err)
	}
	if _, err := readConfig(t, "manifests: ["+pipe+"]"); err == nil || !strings.HasSuffix(err.Error(), ": want a file") {
		t.Errorf("manifest: %v", err)
	}
}

func TestErrorsNameFieldsOfTheFile(t *testing.T) {
	c, err := readConfig(t, "serviceCIDR: nonsense\napiserverArgs: [x=1]\nlogLevels: loud\n")
	if err != nil {
		t.Fatal(err)
	}
	c.file = "cluster.yaml"
	for text, want := range map[string]string{
		"--service-cidr=nonsense: want a range":          "cluster.yaml: serviceCIDR: nonsense: want a range",
		"--apiserver-arg=x=1: no flag":                   "cluster.yaml: apiserverArgs: x=1: no flag",
		"--apiserver-arg=y=1: no flag":                   "--apiserver-arg=y=1: no flag",
		"--cluster-cidr=x: want a range":                 "--cluster-cidr=x: want a range",
		"--v: log level\n--service-cidr=nonsense: twice": "cluster.yaml: logLevels: log level\ncluster.yaml: serviceCIDR: nonsense: twice",
		"cluster dev is running":                         "cluster dev is running",
	} {
		if got := c.Named(text); got != want {
			t.Errorf("%q becomes %q, want %q", text, got, want)
		}
	}
}
