package host

import (
	"context"
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/coracle-io/coracle/cluster"
	"github.com/coracle-io/coracle/internal/containerd"
	"github.com/coracle-io/coracle/test/mark"
)

// inSlots returns records of clusters, each of which is named after its slot.
func inSlots(slots ...int) (all []Record) {
	for _, slot := range slots {
		all = append(all, Record{Slot: slot, Occupied: Occupied{Name: strconv.Itoa(slot)}})
	}
	return all
}

// every returns all slots but some.
func every(but ...int) (slots []int) {
	for slot := range MaxSlots {
		if !slices.Contains(but, slot) {
			slots = append(slots, slot)
		}
	}
	return slots
}

// A slot is taken by a record and by other programs' ports. The record of an
// abandoned cluster takes its slot only as long as others are free.
func TestFreeSlot(t *testing.T) {
	for _, tt := range []struct {
		what      string
		all       []Record
		taken     []int    // slots whose ports others have
		abandoned []string // names of clusters
		want      int
	}{
		{"none", nil, nil, nil, 0},
		{"the first is taken", inSlots(0), nil, nil, 1},
		{"one between", inSlots(0, 2), nil, nil, 1},
		{"its own", append(inSlots(0, 1), Record{Slot: 7, Occupied: Occupied{Name: "new"}}), []int{7}, nil, 7},
		{"ports of another program", inSlots(0), []int{1, 2}, nil, 3},
		{"all are taken", inSlots(every()...), nil, nil, MaxSlots},
		{"an abandoned one beside free ones", inSlots(0), nil, []string{"0"}, 1},
		{"an abandoned one, ports of the others are taken", inSlots(0), every(0), []string{"0"}, 0},
		{"all are abandoned", inSlots(every()...), nil, []string{"3", "7", "9"}, 3},
		{"ports of an abandoned one are taken", inSlots(every()...), []int{3}, []string{"3", "7", "9"}, 7},
		{"another one has the slot since", append(inSlots(every()...), Record{Slot: 3, Occupied: Occupied{Name: "next"}}), nil, []string{"3"}, MaxSlots},
	} {
		got := freeSlot(tt.all, "new",
			func(slot int) bool { return !slices.Contains(tt.taken, slot) },
			func(rec Record) bool { return slices.Contains(tt.abandoned, rec.Name) })
		if got != tt.want {
			t.Errorf("%s: slot %d, want %d", tt.what, got, tt.want)
		}
	}
}

// A slot whose port of the API server another program has is passed over, unless
// the cluster has another port.
func TestSlotWhoseAPIPortIsTaken(t *testing.T) {
	s := Settings{Options: cluster.Options{Name: "new", BindAddress: "127.0.0.1"}}
	slot := MaxSlots - 1 // the higher, the less used
	for slot >= 0 && !s.portsFree(slot) {
		slot--
	}
	if slot < 0 {
		t.Fatal("no slot has free ports")
	}
	l, err := net.Listen("tcp", net.JoinHostPort(s.Options.BindAddress, strconv.Itoa(DefaultsOf("new", slot).Ports.Secure)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	if s.portsFree(slot) {
		t.Errorf("slot %d is free", slot)
	}
	s.Options.Ports.Secure = 1
	if !s.portsFree(slot) {
		t.Errorf("slot %d is not free for a cluster with a port of its own", slot)
	}
}

// A cluster is abandoned when its data directory is gone and nothing of it runs.
func TestAbandoned(t *testing.T) {
	start, err := StartTime(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	rec := Record{RunDir: filepath.Join(dir, "run"), Occupied: Occupied{Name: "test-abandoned", DataDir: filepath.Join(dir, "gone")}}
	if !rec.Abandoned() {
		t.Error("nothing of it is there, and it is not abandoned")
	}
	there, running := rec, rec
	there.DataDir, running.PID, running.PIDStart = dir, os.Getpid(), start
	for what, rec := range map[string]Record{"its data are there": there, "its supervisor runs": running} {
		if rec.Abandoned() {
			t.Errorf("%s, and it is abandoned", what)
		}
	}
	for _, argument := range []string{"--data-dir=" + rec.DataDir, rec.DataDir + "/containerd/config.toml", rec.RunDir + "/containerd/containerd.sock"} {
		_, end := idle(t, argument)
		if rec.Abandoned() {
			t.Errorf("a process has the argument %s, and it is abandoned", argument)
		}
		end()
	}
	idle(t, rec.DataDir+"-2", "/"+rec.Name)
	if !rec.Abandoned() {
		t.Error("processes of others run, and it is not abandoned")
	}
}

// A container of a cluster is known by its control group.
func TestNotAbandonedWithAContainer(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("control groups need root")
	}
	for _, suffix := range []string{"", ".2"} {
		rec := Record{Occupied: Occupied{Name: mark.Name("abandoned"), DataDir: filepath.Join(t.TempDir(), "gone")}}
		root := DefaultsOf(rec.Name, 0).Cgroup + suffix
		t.Cleanup(func() {
			if err := containerd.RemoveCgroups(context.Background(), root); err != nil {
				t.Error(err)
			}
		})
		hierarchy := "/sys/fs/cgroup/pids"
		if _, err := os.Stat(hierarchy); err != nil {
			hierarchy = "/sys/fs/cgroup"
		}
		group := filepath.Join(hierarchy, root, "pod1")
		if err := os.MkdirAll(group, 0o755); err != nil {
			t.Fatal(err)
		}
		cmd, end := idle(t)
		if err := os.WriteFile(filepath.Join(group, "cgroup.procs"), []byte(strconv.Itoa(cmd.Process.Pid)), 0o600); err != nil {
			t.Fatal(err)
		}
		if rec.Abandoned() {
			t.Errorf("a process is in %s, and it is abandoned", root)
		}
		end()
		if !rec.Abandoned() {
			t.Errorf("no process is in %s, and it is not abandoned", root)
		}
	}
}

// idle starts a process that waits until end is called, or the test ends.
func idle(t *testing.T, arguments ...string) (cmd *exec.Cmd, end func()) {
	t.Helper()
	cmd = exec.Command("sh", append([]string{"-c", "echo; read line", "sh"}, arguments...)...)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := out.Read(make([]byte, 1)); err != nil { // the kernel shows its arguments only then
		t.Fatal(err)
	}
	end = func() {
		_ = in.Close()
		_ = cmd.Wait() // read has failed
	}
	t.Cleanup(end)
	return cmd, end
}

// The address ranges of a slot belong to the cluster that has it now. Those of an
// abandoned cluster in it do not matter, those of all others do.
func TestFormerHolders(t *testing.T) {
	dir := t.TempDir()
	rec := func(name string, slot int, dataDir string) Record {
		return Record{Slot: slot, Occupied: Occupied{Name: name, DataDir: dataDir}}
	}
	gone := filepath.Join(dir, "gone")
	s := Settings{Slot: 3, Options: cluster.Options{Name: "new"}}
	former, others := s.FormerHolders([]Record{rec("a", 3, gone), rec("b", 3, dir), rec("c", 4, gone), rec("new", 3, gone)})
	names := func(all []Record) string {
		var names []string
		for _, rec := range all {
			names = append(names, rec.Name)
		}
		return strings.Join(names, " ")
	}
	if names(former) != "a" || names(others) != "b c new" {
		t.Errorf("former are %s, others %s", names(former), names(others))
	}
}

func TestMentions(t *testing.T) {
	for text, want := range map[string]bool{
		"": false, "/a/b": true, "--x=/a/b": true, "/a/b/c": true, "/a/bc": false, "/a/bc\x00/a/b\x00": true,
		"1:pids:/a/b.2/pod\n": true, "1:pids:/a/b\n": true, "1:pids:/a/b-2/pod\n": false,
	} {
		if got := mentions(text, "/a/b"); got != want {
			t.Errorf("%q: %t", text, got)
		}
	}
}

// An error while the machine is read leaves a cluster alone.
func TestNotAbandonedIfUnknown(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	if err := errors.Join(os.WriteFile(file, nil, 0o600), os.Symlink("loop", filepath.Join(dir, "loop"))); err != nil {
		t.Fatal(err)
	}
	for _, dataDir := range []string{filepath.Join(file, "data"), filepath.Join(dir, "loop", "data"), filepath.Join(dir, "loop")} {
		if rec := (Record{RunDir: filepath.Join(dir, "run"), Occupied: Occupied{Name: "a", DataDir: dataDir}}); rec.Abandoned() {
			t.Errorf("%s: abandoned", dataDir)
		}
	}
}
