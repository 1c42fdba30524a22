package pod

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/coracle-io/coracle/internal/kubelet/cri"
	"github.com/coracle-io/coracle/internal/kubelet/files"
	"github.com/coracle-io/coracle/internal/kubelet/volume"
)

// Containers control their termination messages, their logs and the volumes
// that they can write to. The kubelet reads the end of regular files only.
func TestTerminationMessage(t *testing.T) {
	const path = "/dev/termination-log"
	logLine := func(text string) string { return "2026-11-21T07:00:00.1Z stderr F " + text + "\n" }
	for name, test := range map[string]struct {
		write    func(message, log string) error
		code     int32
		runtime  string // what the runtime says
		hostPath string // in place of the pod's own file
		want     string
	}{
		"a message":          {write: func(m, _ string) error { return os.WriteFile(m, []byte("bye"), 0o600) }, want: "bye"},
		"with the runtime's": {write: func(m, _ string) error { return os.WriteFile(m, []byte("bye"), 0o600) }, runtime: "killed", want: "killed: bye"},
		"the end of a hole of 1 TiB": {
			write: func(m, _ string) error { return os.Truncate(m, 1<<40) }, want: strings.Repeat("\x00", maxMessage)},
		"a link to a device": {
			write: func(m, _ string) error { return replace(m, func() error { return os.Symlink("/dev/zero", m) }) }, want: "Error on reading termination log"},
		"a pipe": {
			write: func(m, _ string) error { return replace(m, func() error { return syscall.Mkfifo(m, 0o600) }) }, want: "Error on reading termination log"},
		"a file of the host": {hostPath: "/etc/passwd", want: ""},
		"the log": {
			code: 1, write: func(_, l string) error { return os.WriteFile(l, []byte(logLine("one")+logLine("two")), 0o600) }, want: "one\ntwo\n"},
		"no log after success": {
			write: func(_, l string) error { return os.WriteFile(l, []byte(logLine("one")), 0o600) }, want: ""},
		"80 lines of the log": {
			code: 1, write: func(_, l string) error { return os.WriteFile(l, []byte(strings.Repeat(logLine("x"), 1000)), 0o600) }, want: strings.Repeat("x\n", 80)},
		"2 KiB of the log": {
			code: 1, write: func(_, l string) error {
				return os.WriteFile(l, []byte(strings.Repeat(logLine(strings.Repeat("x", 99)), 1000)), 0o600)
			}, want: strings.Repeat("x", 47) + "\n" + strings.Repeat(strings.Repeat("x", 99)+"\n", 20)},
		"a log that is a link": {
			code: 1, write: func(_, l string) error { return replace(l, func() error { return os.Symlink("/etc/passwd", l) }) }, want: ""},
		"a log that is a hole": {
			code: 1, write: func(_, l string) error { return os.Truncate(l, 1<<40) }, want: ""},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			k := &kuberuntime{config: &Config{Files: files.OS{}, Volumes: &volume.Manager{Root: dir}}}
			pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "default", UID: "uid-web"}}
			pod.Spec.Containers = []v1.Container{{
				Name: "main", TerminationMessagePath: path, TerminationMessagePolicy: v1.TerminationMessageFallbackToLogsOnError}}
			message := filepath.Join(k.config.Volumes.PodDir(pod.UID), "containers/main/1234")
			log := filepath.Join(dir, "logs/default_web_uid/main/0.log")
			for _, path := range []string{message, log} {
				if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(path, nil, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			if test.write != nil {
				if err := test.write(message, log); err != nil {
					t.Fatal(err)
				}
			}
			if test.hostPath == "" {
				test.hostPath = message
			}
			c := &cri.Container{Name: "main", State: cri.Exited, ExitCode: test.code, Message: test.runtime, LogPath: log,
				Mounts: []*runtimeapi.Mount{{ContainerPath: path, HostPath: test.hostPath}}}
			k.readMessage(pod, c)
			if got := c.Message; got != test.want && !(strings.HasPrefix(test.want, "Error") && strings.HasPrefix(got, test.want)) {
				t.Errorf("message of %d bytes %.60q, want %.60q", len(got), got, test.want)
			}
		})
	}
}

func replace(path string, with func() error) error {
	if err := os.Remove(path); err != nil {
		return err
	}
	return with()
}

// Another container wrote the environment file in a volume.
func TestEnvironmentFileOfAPod(t *testing.T) {
	dir := t.TempDir()
	root := filepath.Join(dir, "volume")
	if err := os.Mkdir(root, 0o755); err != nil {
		t.Fatal(err)
	}
	write := func(name, content string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("host", "KEY='hidden'\n")
	write("volume/env", "# KEY=comment\n\n OTHER='KEY=1\nKEY=2\n'\nKEY='the value'\n")
	write("volume/long", "KEY='"+strings.Repeat("x", 33<<10)+"'")
	write("volume/hole", "KEY='1'\n")
	if err := os.Truncate(filepath.Join(root, "hole"), 1<<40); err != nil {
		t.Fatal(err)
	}
	for name, target := range map[string]string{"out": filepath.Join(dir, "host"), "up": "../host", "zero": "/dev/zero", "inner": "env"} {
		if err := os.Symlink(target, filepath.Join(root, name)); err != nil {
			t.Fatal(err)
		}
	}
	if err := syscall.Mkfifo(filepath.Join(root, "pipe"), 0o600); err != nil {
		t.Fatal(err)
	}
	r := &running{config: &Config{Files: files.OS{}}, paths: map[string]string{"vol": root}}
	for path, want := range map[string]string{
		"env": "the value true", "inner": "the value true", "missing": " false",
		"out": "error", "up": "error", "zero": "error", "pipe": "error", "long": "error", "hole": "error", "../host": "error", "/etc/passwd": "error",
	} {
		value, found, err := r.envFile("vol", path, "KEY")
		got := fmt.Sprint(value, " ", found)
		if err != nil {
			got = "error"
		}
		if got != want {
			t.Errorf("%s: %.40s (%v), want %s", path, got, err, want)
		}
	}
}
