package containerd

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// record writes a record of a pod in a network of two plugins.
func record(t *testing.T, results, name, namespace, second string) {
	t.Helper()
	config := fmt.Sprintf(`{"cniVersion": "1.0.0", "name": "others", "plugins": [{"type": "first", "mtu": 1400}, {"type": %q, "capabilities": {"portMappings": true, "bandwidth": false}}]}`, second)
	content, err := json.Marshal(map[string]any{
		"kind": "cniCacheV1", "containerId": name, "ifName": "eth0", "networkName": "others", "netns": namespace, "config": []byte(config),
		"cniArgs": [][2]string{{"K8S_POD_NAME", "p"}, {"K8S_POD_NAMESPACE", "default"}}, "capabilityArgs": map[string]any{"portMappings": []int{80}, "bandwidth": 1},
		"result": map[string]any{"cniVersion": "1.0.0", "ips": []any{}},
	})
	if err == nil {
		err = os.WriteFile(filepath.Join(results, "others-"+name+"-eth0"), content, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// TestDetach checks that the plugins of others are called for the pods of one containerd
// alone, the last one first, with what they got when they connected the pod, and that a
// plugin that fails or is gone keeps nothing else from being removed.
func TestDetach(t *testing.T) {
	dir := t.TempDir()
	results, plugins := filepath.Join(dir, "results"), filepath.Join(dir, "plugins")
	c := Config{RunDir: filepath.Join(dir, "run"), BundleDir: filepath.Join(dir, "bundle"), CNIBinDirs: []string{filepath.Join(dir, "missing"), plugins}}
	if err := detach(t.Context(), c, results); err != nil {
		t.Errorf("without records: %v", err)
	}
	script := func(name, ending string) error {
		return os.WriteFile(filepath.Join(plugins, name), fmt.Appendf(nil, "#!/bin/sh\necho %s $CNI_COMMAND $CNI_CONTAINERID $CNI_IFNAME $CNI_NETNS \"$CNI_ARGS\" \"$(cat)\" >>%s/calls\n%s\n", name, dir, ending), 0o755)
	}
	if err := errors.Join(os.Mkdir(results, 0o700), os.Mkdir(plugins, 0o700), script("first", ""), script("second", ""), script("broken", "echo no server; exit 3")); err != nil {
		t.Fatal(err)
	}
	own := c.stateDir() + "/io.containerd.grpc.v1.cri/netns/"
	record(t, results, "a", own+"a", "second")
	record(t, results, "b", own+"b", "broken")
	record(t, results, "c", own+"c", "gone")
	record(t, results, "d", c.stateDir()+"2/netns/d", "second")
	if err := os.WriteFile(filepath.Join(results, "cut"), []byte(`{"netns": "`+own), 0o600); err != nil {
		t.Fatal(err)
	}
	err := detach(t.Context(), c, results)
	for _, want := range []string{"others-b-eth0: plugin broken: exit status 3: no server", "others-c-eth0: plugin gone is not in "} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	content, err := os.ReadFile(filepath.Join(dir, "calls"))
	if err != nil {
		t.Fatal(err)
	}
	call := func(plugin, name, config string) string {
		return fmt.Sprintf(`%s DEL %s eth0 %s%s K8S_POD_NAME=p;K8S_POD_NAMESPACE=default %s`, plugin, name, own, name, config)
	}
	of := func(plugin string) string {
		return `{"capabilities":{"portMappings":true,"bandwidth":false},"cniVersion":"1.0.0","name":"others","prevResult":{"cniVersion":"1.0.0","ips":[]},"runtimeConfig":{"portMappings":[80]},"type":"` + plugin + `"}`
	}
	const first = `{"cniVersion":"1.0.0","mtu":1400,"name":"others","prevResult":{"cniVersion":"1.0.0","ips":[]},"type":"first"}`
	want := []string{
		call("second", "a", of("second")), call("first", "a", first), call("broken", "b", of("broken")), call("first", "b", first), call("first", "c", first),
	}
	if got := strings.Split(strings.TrimSpace(string(content)), "\n"); !slices.Equal(got, want) {
		t.Errorf("the calls were\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	left, err := filepath.Glob(filepath.Join(results, "*"))
	if want := []string{filepath.Join(results, "cut"), filepath.Join(results, "others-d-eth0")}; err != nil || !slices.Equal(left, want) {
		t.Errorf("left are %q, %v; want %q", left, err, want)
	}
	if err := detach(t.Context(), c, results); err != nil {
		t.Errorf("again: %v", err)
	}
}

// TestOutputOfPluginsIsBounded checks that what a plugin writes takes no more memory, and no
// more room in the error, than is of use.
func TestOutputOfPluginsIsBounded(t *testing.T) {
	dir := t.TempDir()
	const script = "#!/bin/sh\necho no server\nhead -c 100000 /dev/zero | tr '\\0' x >&2\nexit 3\n"
	if err := os.WriteFile(filepath.Join(dir, "talkative"), []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	err := (&attachment{}).call(t.Context(), []string{dir}, map[string]json.RawMessage{"type": json.RawMessage(`"talkative"`)})
	if err == nil || !strings.Contains(err.Error(), "plugin talkative: exit status 3: no server") || len(err.Error()) > 2*mostComplaint {
		t.Errorf("%.200v", err)
	}
}
