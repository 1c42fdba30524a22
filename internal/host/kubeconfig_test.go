package host

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/coracle-io/coracle/internal/sharedfile"
)

func oursNamed(name string) *clientcmdapi.Config {
	c := clientcmdapi.NewConfig()
	c.Clusters[name] = &clientcmdapi.Cluster{Server: "https://127.0.0.1:6443"}
	c.AuthInfos[name] = &clientcmdapi.AuthInfo{Token: "secret"}
	c.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: name}
	c.CurrentContext = name
	return c
}

const theirs = `apiVersion: v1
kind: Config
current-context: theirs
contexts:
- name: theirs
  context: {cluster: theirs, user: theirs}
clusters:
- name: theirs
  cluster: {server: "https://example.org", certificate-authority: relative/ca.crt}
users:
- name: theirs
  user: {token: abc}
`

// A kubeconfig that everybody could read is its owner's alone before the admin
// key is in it; a link to it stays one.
func TestMergeContextClosesTheFile(t *testing.T) {
	dir := t.TempDir()
	file, link := filepath.Join(dir, "real"), filepath.Join(dir, "config")
	if err := os.WriteFile(file, []byte(theirs), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(file, 0o644); err != nil {
		t.Fatal(err)
	}
	uid := os.Getuid()
	if uid == 0 {
		uid = 1234
		if err := os.Chown(file, uid, uid); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("real", link); err != nil {
		t.Fatal(err)
	}
	m, err := MergeContext(t.Context(), link, "a", oursNamed("a"))
	if err != nil || m.Previous != "theirs" || len(m.Made) > 0 {
		t.Fatalf("%+v, %v", m, err)
	}
	info, err := os.Lstat(file)
	if err != nil || info.Mode().Perm() != 0o600 || int(info.Sys().(*syscall.Stat_t).Uid) != uid {
		t.Errorf("the file is %v of user %d, %v", info.Mode(), info.Sys().(*syscall.Stat_t).Uid, err)
	}
	if info, err := os.Lstat(link); err != nil || info.Mode().Type() != os.ModeSymlink {
		t.Errorf("the link is %v, %v", info, err)
	}
	if err := RemoveContext(t.Context(), link, "a", m); err != nil {
		t.Fatal(err)
	}
	raw, err := os.ReadFile(link)
	if err != nil || !strings.Contains(string(raw), "current-context: theirs") || strings.Contains(string(raw), "secret") || !strings.Contains(string(raw), "relative/ca.crt") {
		t.Errorf("taken out again, the file is %s, %v", raw, err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 2 {
		t.Errorf("left are %v, %v", left, err)
	}
}

// The files that a killed process of Coracle's has left block no writer and are
// removed; the lock of anybody else is waited for.
func TestKubeconfigOfAKilledWriter(t *testing.T) {
	ended := exec.Command("true")
	if err := ended.Run(); err != nil {
		t.Fatal(err)
	}
	dead, err := json.Marshal(sharedfile.Holder{PID: ended.Process.Pid, PIDStart: 1})
	if err != nil {
		t.Fatal(err)
	}
	live, err := json.Marshal(holderOf("", os.Getpid()))
	if err != nil {
		t.Fatal(err)
	}
	for what, tt := range map[string]struct {
		lock   []byte
		waited bool
	}{"killed": {dead, false}, "at work": {live, true}, "kubectl": {nil, true}} {
		file := filepath.Join(t.TempDir(), "config")
		left := []string{file + ".lock", filepath.Join(filepath.Dir(file), ".config.coracle-1")}
		leave := func() {
			for _, path := range left {
				if err := os.WriteFile(path, tt.lock, 0o600); err != nil {
					t.Fatal(err)
				}
			}
		}
		gone := func(when string) {
			t.Helper()
			if there, err := filepath.Glob(filepath.Join(filepath.Dir(file), "*config?*")); err != nil || len(there) > 0 {
				t.Errorf("%s: after %s there are %v, %v", what, when, there, err)
			}
		}
		leave()
		ctx, cancel := context.WithTimeout(t.Context(), 4*kubeconfigRetry)
		if tt.waited {
			if _, err := MergeContext(ctx, file, "a", oursNamed("a")); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("%s: %v", what, err)
			}
			cancel()
			continue
		}
		cancel()
		if err := RemoveContext(t.Context(), file, "a", Merged{}); err != nil {
			t.Error(err)
		}
		gone("the removal from a file that was never made")
		leave()
		if _, err := MergeContext(t.Context(), file, "a", oursNamed("a")); err != nil {
			t.Errorf("%s: %v", what, err)
		}
		gone("a merge")
		leave()
		if err := RemoveContext(t.Context(), file, "a", Merged{}); err != nil {
			t.Error(err)
		}
		gone("the removal")
	}
}

// While it is written, the lock names the writer.
func TestKubeconfigLockNamesItsWriter(t *testing.T) {
	k, err := openKubeconfig(filepath.Join(t.TempDir(), "config"), false)
	if err != nil {
		t.Fatal(err)
	}
	defer k.close()
	if err := k.lock(t.Context()); err != nil {
		t.Fatal(err)
	}
	raw, err := os.ReadFile(k.path + ".lock")
	if want := fmt.Sprintf(`{"pid":%d,"pidStart":`, os.Getpid()); err != nil || !strings.HasPrefix(string(raw), want) {
		t.Errorf("it says %s, %v", raw, err)
	}
}

// A pipe in the place of a kubeconfig must not hold up every cluster of the
// machine.
func TestMergeContextDoesNotWaitForPipes(t *testing.T) {
	pipe := filepath.Join(t.TempDir(), "config")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := MergeContext(t.Context(), pipe, "a", oursNamed("a")); err == nil || !strings.Contains(err.Error(), "not a kubeconfig") {
		t.Errorf("%v, want that it is not a kubeconfig", err)
	}
}

// Only files and directories that were made for the context are removed with
// it.
func TestRemoveContextLeavesWhatWasThere(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "kube", "sub", "config")
	if err := os.Mkdir(filepath.Join(dir, "kube"), 0o700); err != nil {
		t.Fatal(err)
	}
	m, err := MergeContext(t.Context(), file, "a", oursNamed("a"))
	if err != nil || len(m.Made) != 2 {
		t.Fatalf("%+v, %v", m, err)
	}
	if err := RemoveContext(t.Context(), file, "a", m); err != nil {
		t.Fatal(err)
	}
	if left, err := os.ReadDir(filepath.Join(dir, "kube")); err != nil || len(left) > 0 {
		t.Errorf("left are %v, %v", left, err)
	}
	empty := filepath.Join(dir, "empty")
	if err := os.WriteFile(empty, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if m, err = MergeContext(t.Context(), empty, "a", oursNamed("a")); err != nil {
		t.Fatal(err)
	}
	if err := RemoveContext(t.Context(), empty, "a", m); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(empty); err != nil {
		t.Errorf("a file that was there before is gone: %v", err)
	}
}

func TestDefaultKubeconfig(t *testing.T) {
	t.Setenv("HOME", "/home/u")
	t.Setenv("KUBECONFIG", "")
	if got := DefaultKubeconfig(); got != "/home/u/.kube/config" {
		t.Error(got)
	}
	t.Setenv("KUBECONFIG", ":/one:/two")
	if got := DefaultKubeconfig(); got != "/one" {
		t.Error(got)
	}
}
