package containerd

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/coracle-io/coracle/internal/bounded"
)

// cniResults is where containerd's CNI library records what plugins have made.
const cniResults = "/var/lib/cni/results"

// detachTimeout bounds the calls of all plugins: some ask an API server, which has
// ended.
const detachTimeout = 20 * time.Second

// mostComplaint bounds what is read of the output of a plugin, in bytes.
const mostComplaint = 4 << 10

// Detach lets the CNI plugins of others remove what they have made for the pods of a
// containerd that has ended, as it does for each pod that ends (the command DEL of the
// CNI specification 1.0). It returns what they have not removed: the records of that are
// deleted nevertheless. Calling it again is no error.
func Detach(ctx context.Context, c Config) error { return detach(ctx, c, cniResults) }

func detach(ctx context.Context, c Config, results string) error {
	entries, err := os.ReadDir(results)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, detachTimeout)
	defer cancel()
	var errs []error
	for _, entry := range entries {
		path := filepath.Join(results, entry.Name())
		content, err := os.ReadFile(path)
		var a attachment
		if err != nil || json.Unmarshal(content, &a) != nil || !strings.HasPrefix(a.Namespace, c.stateDir()+"/") {
			continue // another containerd's, or cut short, so that nobody knows whose it is
		}
		if err := a.remove(ctx, c.pluginDirs()); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", entry.Name(), err))
		}
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// attachment is a record of the CNI library: how a pod was connected to a network.
type attachment struct {
	Container    string                     `json:"containerId"`
	Interface    string                     `json:"ifName"`
	Namespace    string                     `json:"netns"`
	Config       []byte                     `json:"config"` // the network configuration list
	Arguments    [][2]string                `json:"cniArgs"`
	Capabilities map[string]json.RawMessage `json:"capabilityArgs"`
	Result       json.RawMessage            `json:"result"`
}

// remove calls the plugins of the list, the last one first. What fails for one does not
// keep it from the others.
func (a *attachment) remove(ctx context.Context, dirs []string) error {
	var list struct {
		Version json.RawMessage              `json:"cniVersion"`
		Name    json.RawMessage              `json:"name"`
		Plugins []map[string]json.RawMessage `json:"plugins"`
	}
	if err := json.Unmarshal(a.Config, &list); err != nil {
		return fmt.Errorf("the network configuration: %w", err)
	}
	var errs []error
	for _, plugin := range slices.Backward(list.Plugins) {
		plugin["cniVersion"], plugin["name"] = list.Version, list.Name
		if len(a.Result) > 0 {
			plugin["prevResult"] = a.Result
		}
		err := a.passCapabilities(plugin)
		if err == nil {
			err = a.call(ctx, dirs, plugin)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// passCapabilities gives a plugin the arguments of the capabilities that it declares.
func (a *attachment) passCapabilities(plugin map[string]json.RawMessage) error {
	var declared map[string]bool
	if raw, ok := plugin["capabilities"]; ok {
		if err := json.Unmarshal(raw, &declared); err != nil {
			return fmt.Errorf("capabilities: %w", err)
		}
	}
	passed := map[string]json.RawMessage{}
	for name, argument := range a.Capabilities {
		if declared[name] {
			passed[name] = argument
		}
	}
	if len(passed) == 0 {
		return nil
	}
	raw, err := json.Marshal(passed)
	plugin["runtimeConfig"] = raw
	return err
}

// call runs a plugin, which is in one of dirs, with its configuration.
func (a *attachment) call(ctx context.Context, dirs []string, plugin map[string]json.RawMessage) error {
	var name string
	if err := json.Unmarshal(plugin["type"], &name); err != nil || name != filepath.Base(name) {
		return fmt.Errorf("a plugin of type %s: want the name of a program", plugin["type"])
	}
	is := slices.IndexFunc(dirs, func(dir string) bool {
		info, err := os.Stat(filepath.Join(dir, name))
		return err == nil && info.Mode().IsRegular()
	})
	if is < 0 {
		return fmt.Errorf("plugin %s is not in %s any more", name, strings.Join(dirs, ", "))
	}
	config, err := json.Marshal(plugin)
	if err != nil {
		return err
	}
	var arguments []string
	for _, argument := range a.Arguments {
		arguments = append(arguments, argument[0]+"="+argument[1])
	}
	cmd := exec.CommandContext(ctx, filepath.Join(dirs[is], name))
	cmd.WaitDelay = time.Second // its children may hold its output open
	cmd.Stdin = bytes.NewReader(config)
	cmd.Env = append(os.Environ(),
		"CNI_COMMAND=DEL", "CNI_CONTAINERID="+a.Container, "CNI_NETNS="+a.Namespace, "CNI_IFNAME="+a.Interface,
		"CNI_ARGS="+strings.Join(arguments, ";"), "CNI_PATH="+strings.Join(dirs, string(filepath.ListSeparator)),
	)
	output := bounded.NewBuffer(mostComplaint)
	cmd.Stdout, cmd.Stderr = output, output
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("plugin %s: %w: %s", name, err, strings.TrimSpace(output.String()))
	}
	return nil
}
