package podnet

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// maxLease bounds a lease of the host-local plugin, in bytes: the id of a
// sandbox, and the name of its interface.
const maxLease = 512

// Sandboxes returns the ids of the sandboxes that hold addresses of the network
// or records of the CNI library. The id "" stands for leases that name no sandbox.
func (n *Network) Sandboxes() ([]string, error) {
	var ids []string
	err := n.leases(func(_, sandbox string) error {
		ids = append(ids, sandbox)
		return nil
	})
	if err != nil {
		return nil, err
	}
	results, err := n.results()
	if err != nil {
		return nil, err
	}
	for _, path := range results {
		ids = append(ids, n.resultOf(path))
	}
	slices.Sort(ids)
	return slices.Compact(ids), nil
}

// Release removes what the network has of a sandbox that does not exist any
// more: its interface, the records of the CNI library, and its addresses. A
// runtime that is killed while it makes a sandbox, or that cannot start the
// plugins, leaves them.
func (n *Network) Release(sandbox string) error {
	results, err := n.results()
	if err != nil {
		return err
	}
	for _, path := range results {
		if n.resultOf(path) != sandbox {
			continue
		}
		if err := removeInterfaces(path); err != nil {
			return err
		}
		if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	return n.leases(func(path, holder string) error {
		// Only holders of the lock write leases. A lease without a sandbox is left
		// by a plugin that was killed or found the disk full, or by a loss of power.
		if holder != sandbox && holder != "" {
			return nil
		}
		return os.Remove(path)
	})
}

// bootName is the file in the directory of the leases with the id of the boot in
// which they were made.
const bootName = "boot-id"

// ReleaseFormerBoot releases the addresses of all sandboxes if they were made before
// the machine started: their network namespaces are gone, also those of sandboxes
// that the runtime still lists. The runtime must not run. It makes new sandboxes
// then, and tells the plugins to remove the old ones, which may do so twice.
func (n *Network) ReleaseFormerBoot() error {
	boot, err := os.ReadFile(n.bootID)
	if err != nil {
		return err
	}
	path := filepath.Join(n.config.LeaseDir, bootName)
	former, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	if err == nil && !bytes.Equal(former, boot) {
		if err := n.releaseAll(); err != nil {
			return fmt.Errorf("releasing the addresses from before the machine started: %w", err)
		}
	}
	return writeFile(path, boot)
}

// releaseAll removes all leases, and the records of the CNI library. It leaves
// interfaces alone.
func (n *Network) releaseAll() error {
	if err := n.removeResults(); err != nil {
		return err
	}
	return n.leases(func(path, _ string) error { return os.Remove(path) })
}

// leases calls do for each lease of the host-local plugin, with its file and the
// id of the sandbox that holds it, "" if it names none. The plugin waits until
// leases returns.
func (n *Network) leases(do func(path, sandbox string) error) error {
	dir := filepath.Join(n.config.LeaseDir, n.config.Name)
	lock, err := os.Open(filepath.Join(dir, "lock"))
	if errors.Is(err, os.ErrNotExist) {
		return nil // the network has had no pod
	}
	if err != nil {
		return err
	}
	defer func() { _ = lock.Close() }()
	for {
		if err = unix.Flock(int(lock.Fd()), unix.LOCK_EX); !errors.Is(err, unix.EINTR) {
			break
		}
	}
	if err != nil {
		return fmt.Errorf("locking %s: %w", lock.Name(), err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, entry := range entries {
		if _, err := netip.ParseAddr(entry.Name()); err != nil {
			continue
		}
		path := filepath.Join(dir, entry.Name())
		if info, err := entry.Info(); err != nil || !info.Mode().IsRegular() || info.Size() > maxLease {
			continue
		}
		content, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		sandbox, _, _ := strings.Cut(strings.TrimSpace(string(content)), "\r\n")
		if err := do(path, sandbox); err != nil {
			return err
		}
	}
	return nil
}

// resultOf returns the id of the sandbox that a file of results is about.
func (n *Network) resultOf(path string) string {
	return strings.TrimSuffix(strings.TrimPrefix(filepath.Base(path), n.config.Name+"-"), "-eth0")
}

// removeInterfaces removes the interfaces on the node that the CNI library
// recorded for a sandbox.
func removeInterfaces(path string) error {
	content, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	var record struct {
		Result struct {
			Interfaces []struct{ Name, Sandbox string }
		}
	}
	if json.Unmarshal(content, &record) != nil {
		return nil // a record that was cut short
	}
	for _, i := range record.Result.Interfaces {
		if i.Sandbox != "" || !strings.HasPrefix(i.Name, vethPrefix) {
			continue
		}
		link, err := netlink.LinkByName(i.Name)
		if isMissing(err) {
			continue
		}
		if err != nil {
			return err
		}
		if err := netlink.LinkDel(link); err != nil && linkExists(link) {
			return fmt.Errorf("removing interface %s: %w", i.Name, err)
		}
	}
	return nil
}

// vethPrefix is how the bridge plugin names the interfaces of pods on the node.
const vethPrefix = "veth"
