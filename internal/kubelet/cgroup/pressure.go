package cgroup

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// Pressure is how long the processes of a group have waited for a resource
// (pressure stall information, https://docs.kernel.org/accounting/psi.html).
type Pressure struct {
	// Some of the processes waited, or Full: all that were not idle.
	Some, Full Stall
}

// Stall is the time that was lost: in percent of the last 10, 60 and 300
// seconds, and since the group was made.
type Stall struct {
	Avg10, Avg60, Avg300 float64
	Nanoseconds          uint64
}

// Pressures are those of a group. They are nil where the kernel does not measure them, as
// in version 1.
type Pressures struct {
	CPUPressure, MemoryPressure, IOPressure *Pressure
}

// Pressures implements Groups.
func (k *Kernel) Pressures(path string) Pressures {
	if !k.unified {
		return Pressures{}
	}
	return pressures(filepath.Join(k.root, path), path == "/")
}

// pressures returns those in a directory of the unified hierarchy. The root has the
// machine's.
func pressures(dir string, root bool) Pressures {
	read := func(resource string) *Pressure {
		raw, err := os.ReadFile(filepath.Join(dir, resource+".pressure"))
		if root && errors.Is(err, fs.ErrNotExist) {
			raw, err = os.ReadFile(filepath.Join("/proc/pressure", resource))
		}
		if err != nil {
			return nil
		}
		return parsePressure(string(raw))
	}
	return Pressures{read("cpu"), read("memory"), read("io")}
}

// parsePressure parses lines of the form "some avg10=0.00 avg60=0.00 avg300=0.00
// total=0", whose total is in microseconds.
func parsePressure(text string) *Pressure {
	p := &Pressure{}
	for line := range strings.Lines(text) {
		words := strings.Fields(line)
		if len(words) == 0 {
			continue
		}
		stall := &p.Some
		if words[0] == "full" {
			stall = &p.Full
		}
		for _, word := range words[1:] {
			name, value, _ := strings.Cut(word, "=")
			if name == "total" {
				microseconds, _ := strconv.ParseUint(value, 10, 64)
				stall.Nanoseconds = microseconds * 1000
				continue
			}
			percent, _ := strconv.ParseFloat(value, 64)
			switch name {
			case "avg10":
				stall.Avg10 = percent
			case "avg60":
				stall.Avg60 = percent
			case "avg300":
				stall.Avg300 = percent
			}
		}
	}
	return p
}
