package host

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/coracle-io/coracle/cluster"
)

func TestListOfNodes(t *testing.T) {
	c, err := readConfig(t, `
nodes:
- role: control-plane
  name: alpha
  labels: {disk: fast}
- role: worker
  name: beta.example
  labels: {pool: blue}
  taints: ["dedicated=gpu:NoSchedule", "spare:NoExecute"]
  zone: a
  region: north
  kubeletArgs: [max-pods=7]
- {}
`)
	if err != nil {
		t.Fatal(err)
	}
	s := NewSettings()
	set := c.Apply(&s, nil)
	slices.Sort(set)
	if !slices.Equal(set, []string{"node-name", "nodes"}) || s.Nodes != 3 || s.Options.NodeName != "alpha" || c.ListedNodes() != 3 {
		t.Errorf("set are %q: %d nodes, the first is called %s", set, s.Nodes, s.Options.NodeName)
	}
	want := []cluster.EachNode{
		{Labels: map[string]string{"disk": "fast"}},
		{
			Name: "beta.example", Labels: map[string]string{"pool": "blue", "topology.kubernetes.io/zone": "a", "topology.kubernetes.io/region": "north"},
			Taints: []string{"dedicated=gpu:NoSchedule", "spare:NoExecute"}, KubeletArgs: []string{"max-pods=7"},
		},
		{},
	}
	if diff := cmp.Diff(want, s.Options.Node.Each); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if names := s.ClusterOptions().NodeNames(); !slices.Equal(names, []string{"alpha", "beta.example", "alpha-3"}) {
		t.Errorf("they are called %v", names)
	}
	again := NewSettings()
	if again.Nodes = 3; !slices.Contains(c.Apply(&again, []string{"nodes"}), "nodes") || len(again.Options.Node.Each) != 3 {
		t.Errorf("with a number on the command line: %+v", again.Options.Node.Each)
	}
}

func TestImagesOfNodes(t *testing.T) {
	archive := filepath.Join(t.TempDir(), "web.tar")
	if err := os.WriteFile(archive, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := readConfig(t, "nodes: [{}, {images: ["+archive+"]}]")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([][]string{nil, {archive}}, c.NodeImages); diff != "" || !c.HasImages() {
		t.Errorf("images (-want +got):\n%s", diff)
	}
	if c, err := readConfig(t, "nodes: [{}]"); err != nil || c.HasImages() {
		t.Errorf("without images: %v", err)
	}
}

// Every wrong field is named by its path.
func TestWrongListsOfNodes(t *testing.T) {
	for fields, want := range map[string][]string{
		"nodes: []":                                               {"nodes: is empty: say nodes: 0 for a control plane alone"},
		"nodes: [1]":                                              {"nodes[0]: want fields such as labels, or {} for none"},
		"nodes: [{lables: {}}]":                                   {"nodes[0].lables: unknown field: want one of images, kubeletArgs, labels, name, region, role, taints, zone"},
		"nodes: [{role: worker}]":                                 {"nodes[0].role: worker: the first node is the machine"},
		"nodes: [{role: master}]":                                 {"nodes[0].role: master: want control-plane or worker"},
		"nodes: [{name: A}]":                                      {"nodes[0].name: A: a lowercase RFC 1123 subdomain"},
		"nodes: [{labels: {a: 1}}]":                               {`nodes[0].labels["a"]: want text; put it in quotes`},
		"nodes: [{labels: {a b: x}}]":                             {`nodes[0].labels["a b"]: name part must consist of`},
		"nodes: [{taints: [a=b]}]":                                {"nodes[0].taints[0]: a=b: want KEY=VALUE:EFFECT"},
		"nodes: [{taints: [a:Never]}]":                            {"nodes[0].taints[0]: a:Never: want KEY=VALUE:EFFECT"},
		"nodes: [{images: [none.tar]}]":                           {"nodes[0].images[0]: stat "},
		"nodes: [{zone: 'a b'}]":                                  {"nodes[0].zone: a b: a valid label must be"},
		"nodeName: a\nnodes: [{name: b}]":                         {"nodes[0].name: b: nodeName says a: leave one of them out"},
		"nodes: [{labels: {node-role.kubernetes.io/worker: ''}}]": {`nodes[0].labels["node-role.kubernetes.io/worker"]: a kubelet may not give this label`},
		"nodes: [{zone: a, labels: {topology.kubernetes.io/zone: b}}]":         {"nodes[0].zone: a: the label topology.kubernetes.io/zone says b"},
		"nodes: [{taints: ['a=1:NoSchedule', 'a=2:NoSchedule']}]":              {"nodes[0].taints[1]: a=2:NoSchedule: a taint before has the same key and effect"},
		"nodes: [{kubeletArgs: [no-such=1, max-pods=many, root-dir=/x]}]":      {"nodes[0].kubeletArgs[0]: no-such=1: ", "nodes[0].kubeletArgs[1]: max-pods=many: ", "nodes[0].kubeletArgs[2]: root-dir=/x: the cluster sets it for each node"},
		"nodes: [{kubeletArgs: [node-labels=a=b]}]":                            {"nodes[0].kubeletArgs[0]: node-labels=a=b: say labels in place of it"},
		"nodes: [{name: A}, {role: control-plane}, {zone: 1}]\nscheduler: no!": {"nodes[0].name: A: ", "nodes[1].role: control-plane: the control plane is on the machine", "nodes[2].zone: want text", "scheduler: want true or false"},
	} {
		_, err := readConfig(t, fields)
		if err == nil {
			t.Errorf("%s is accepted", fields)
			continue
		}
		lines := strings.Split(err.Error(), "\n")
		if len(lines) != len(want) {
			t.Errorf("%s: errors\n%v, want %d", fields, err, len(want))
			continue
		}
		for i, line := range lines {
			if !strings.HasPrefix(line, want[i]) {
				t.Errorf("%s: error %q, want %q", fields, line, want[i])
			}
		}
	}
}
