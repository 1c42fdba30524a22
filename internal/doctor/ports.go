package doctor

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// readPorts returns the ports of a cluster with what keeps it from using them.
func readPorts(o Options) []Port {
	var holders map[int]holder // read once, if a port is taken
	out := slices.Clone(o.Ports)
	for i := range out {
		p := &out[i]
		address := ""
		if p.Flag != "" {
			address = o.BindAddress
		}
		l, err := net.Listen("tcp", net.JoinHostPort(address, strconv.Itoa(p.Number)))
		if err == nil {
			_ = l.Close()
			continue
		}
		p.Err = err
		if holders == nil {
			holders = listeners()
		}
		h, known := holders[p.Number]
		if known {
			p.Holder = fmt.Sprintf("%s (process %d)", h.name, h.pid)
		}
		if o.Supervisor != 0 && (!known || h.pid == o.Supervisor || parent(h.pid) == o.Supervisor) {
			p.Err = nil
		}
	}
	return out
}

// holder is a process that listens on a port.
type holder struct {
	name string
	pid  int
}

// parent returns the parent of a process, or 0.
func parent(pid int) int {
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(raw)) {
		if text, ok := strings.CutPrefix(line, "PPid:"); ok {
			id, _ := strconv.Atoi(strings.TrimSpace(text))
			return id
		}
	}
	return 0
}

// listeners returns who listens on TCP ports, by port, as far as this user may
// see it.
func listeners() map[int]holder {
	ports := map[string]int{} // by the inode of the socket
	for _, file := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
		raw, err := os.ReadFile(file)
		if err != nil {
			continue
		}
		for line := range strings.Lines(string(raw)) {
			if port, inode, ok := listener(line); ok {
				ports[inode] = port
			}
		}
	}
	out := map[int]holder{}
	eachFile(func(pid, target string) {
		inode, ok := strings.CutPrefix(target, "socket:[")
		port := ports[strings.TrimSuffix(inode, "]")]
		if !ok || port == 0 {
			return
		}
		line, err := os.ReadFile("/proc/" + pid + "/cmdline") // the kernel's own name may be exe
		program, _, _ := strings.Cut(string(line), "\x00")
		if id, notANumber := strconv.Atoi(pid); err == nil && notANumber == nil && program != "" {
			out[port] = holder{filepath.Base(program), id}
		}
	})
	return out
}

// listener returns the port and the inode of a line of /proc/net/tcp that is of a
// listening socket.
func listener(line string) (port int, inode string, ok bool) {
	const listening = "0A"
	fields := strings.Fields(line)
	if len(fields) < 10 || fields[3] != listening {
		return 0, "", false
	}
	i := strings.LastIndex(fields[1], ":")
	n, err := strconv.ParseUint(fields[1][i+1:], 16, 16)
	return int(n), fields[9], err == nil
}
