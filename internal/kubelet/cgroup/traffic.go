package cgroup

import (
	"bytes"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// Disk is what a group has read from a disk and written to it since the group was
// made.
type Disk struct {
	Device                                 string // its path, such as /dev/sda
	ReadBytes, WrittenBytes, Reads, Writes uint64
}

// Packets are the packets of a network interface since it was made.
type Packets struct{ Received, ReceivedDropped, Sent, SentDropped uint64 }

// Disks implements Groups.
func (k *Kernel) Disks(path string) []Disk {
	counts := map[string]Disk{} // by the numbers of the device, such as 8:0
	if k.unified {
		addDisks2(counts, filepath.Join(k.root, path, "io.stat"))
	} else {
		dir := filepath.Join(k.root, "blkio", path)
		addDisks1(counts, filepath.Join(dir, "blkio.throttle.io_service_bytes_recursive"), func(d *Disk) (read, written *uint64) { return &d.ReadBytes, &d.WrittenBytes })
		addDisks1(counts, filepath.Join(dir, "blkio.throttle.io_serviced_recursive"), func(d *Disk) (read, written *uint64) { return &d.Reads, &d.Writes })
	}
	var all []Disk
	for _, numbers := range slices.Sorted(maps.Keys(counts)) {
		d := counts[numbers]
		d.Device = k.device(numbers)
		all = append(all, d)
	}
	return all
}

// device returns the path of the device with these numbers. If the kernel does not
// name it, the numbers stand for it.
func (k *Kernel) device(numbers string) string {
	link, err := os.Readlink(filepath.Join(k.blocks, numbers))
	if err != nil {
		return numbers
	}
	return "/dev/" + filepath.Base(link)
}

// addDisks2 adds the counters of a file of version 2, whose lines are such as
// "8:0 rbytes=4096 wbytes=0 rios=1 wios=0 dbytes=0 dios=0".
func addDisks2(counts map[string]Disk, file string) {
	for _, line := range lines(file) {
		var d Disk
		for _, field := range line[1:] {
			name, value, _ := strings.Cut(field, "=")
			n, _ := strconv.ParseUint(value, 10, 64)
			switch name {
			case "rbytes":
				d.ReadBytes = n
			case "wbytes":
				d.WrittenBytes = n
			case "rios":
				d.Reads = n
			case "wios":
				d.Writes = n
			}
		}
		counts[line[0]] = d
	}
}

// addDisks1 adds the counters of a file of version 1, whose lines are such as
// "8:0 Read 4096". in returns where reads and writes belong.
func addDisks1(counts map[string]Disk, file string, in func(*Disk) (read, written *uint64)) {
	for _, line := range lines(file) {
		if len(line) != 3 { // the sum of all disks
			continue
		}
		n, _ := strconv.ParseUint(line[2], 10, 64)
		d := counts[line[0]]
		read, written := in(&d)
		switch line[1] {
		case "Read":
			*read = n
		case "Write":
			*written = n
		}
		counts[line[0]] = d
	}
}

// Packets implements Groups.
func (k *Kernel) Packets(path string) map[string]Packets {
	for _, root := range k.hierarchies() {
		for _, process := range fields(filepath.Join(root, path, "cgroup.procs")) {
			if process != "0" { // a process of another PID namespace
				return packets(filepath.Join(k.proc, process, "net", "dev"))
			}
		}
	}
	return nil
}

// packets reads a file of the form of /proc/net/dev (see proc_pid_net(5)).
func packets(file string) map[string]Packets {
	all := map[string]Packets{}
	for _, line := range lines(file) {
		name, first, isInterface := strings.Cut(line[0], ":")
		if !isInterface {
			continue // a heading
		}
		columns := line[1:]
		if first != "" { // the first number follows the colon at once
			columns = slices.Concat([]string{first}, columns)
		}
		if len(columns) < 12 {
			continue
		}
		count := func(column int) uint64 {
			n, _ := strconv.ParseUint(columns[column], 10, 64)
			return n
		}
		all[name] = Packets{Received: count(1), ReceivedDropped: count(3), Sent: count(9), SentDropped: count(11)}
	}
	return all
}

// maxTraffic bounds a file of traffic in bytes: containers with the capability NET_ADMIN
// can make any number of interfaces.
const maxTraffic = 1 << 20

// lines returns the fields of the lines of a file that are not empty. It leaves out
// what follows maxTraffic.
func lines(file string) [][]string {
	f, err := os.Open(file)
	if err != nil {
		return nil
	}
	defer func() { _ = f.Close() }()
	raw, err := io.ReadAll(io.LimitReader(f, maxTraffic))
	if err != nil {
		return nil
	}
	if len(raw) == maxTraffic { // the last line may be cut
		raw = raw[:bytes.LastIndexByte(raw, '\n')+1]
	}
	var all [][]string
	for line := range strings.Lines(string(raw)) {
		if words := strings.Fields(line); len(words) > 0 {
			all = append(all, words)
		}
	}
	return all
}
