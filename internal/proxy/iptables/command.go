package iptables

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/coracle-io/coracle/internal/bounded"
	"github.com/coracle-io/coracle/internal/netnamespace"
	"github.com/coracle-io/coracle/internal/printable"
)

// family has its own programs.
type family struct {
	name   v1.IPFamily
	prefix string // of its programs' names
}

// families returns the families of a node with or without IPv6.
func families(ipv6 bool) []family {
	list := []family{{v1.IPv4Protocol, "ip"}}
	if ipv6 {
		list = append(list, family{v1.IPv6Protocol, "ip6"})
	}
	return list
}

func (f family) is4() bool { return f.name == v1.IPv4Protocol }

// program returns the name of a program of the family, such as ip6tables-restore for
// "-restore".
func (f family) program(suffix string) string { return f.prefix + "tables" + suffix }

// missing returns the first program of the family that is not in PATH, or "".
func (f family) missing() string {
	for _, suffix := range []string{"-restore", "-save", ""} {
		if _, err := exec.LookPath(f.program(suffix)); err != nil {
			return f.program(suffix)
		}
	}
	return ""
}

// Installed returns an error that says what to install if a program is missing.
func Installed(ipv6 bool) error {
	for _, f := range families(ipv6) {
		if program := f.missing(); program != "" {
			return fmt.Errorf("the proxy mode iptables needs the program %s, which is not in PATH: install the package iptables, or choose the mode nftables, which needs no program", program)
		}
	}
	return nil
}

const (
	// lockSeconds is how long the programs wait for each other, in seconds, as in
	// upstream.
	lockSeconds = "5"
	// patience is how long a program may take. The kernel goes through a whole table.
	patience = 5 * time.Minute
	// mostInput and mostOutput bound what is written and read, in bytes. mostMessage
	// bounds what is read of an error.
	mostInput   = 256 << 20
	mostOutput  = 256 << 20
	mostMessage = 4 << 10
)

// runner runs a program with an input and returns its output.
type runner func(program string, args []string, input []byte) (string, error)

// execute returns a runner in a network namespace; 0 is that of the calling thread. A
// program ends with this process, so that none changes rules when all are removed.
func execute(netNS int) runner {
	return func(program string, args []string, input []byte) (string, error) {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		cmd := exec.CommandContext(ctx, program, args...)
		output, message := bounded.NewBuffer(mostOutput), bounded.NewBuffer(mostMessage)
		cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(input), output, message
		cmd.WaitDelay = time.Second
		cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} // when this thread ends
		if err := netnamespace.Do(netNS, cmd.Run); err != nil {
			return "", fmt.Errorf("%s: %w: %s", program, err, printable.Line(message.String()))
		}
		if output.IsCut() {
			return "", fmt.Errorf("%s: the output is longer than %d bytes", program, mostOutput)
		}
		return output.String(), nil
	}
}

// isNotThere reports whether a program has ended with the status for a chain or a table
// that is not there.
func isNotThere(err error) bool {
	var ended *exec.ExitError
	return errors.As(err, &ended) && ended.ExitCode() == 1
}

// withLine adds the line of the input to an error that has its number.
func withLine(err error, input []byte) error {
	if err == nil {
		return nil
	}
	found := regexp.MustCompile(`line:? (\d+)`).FindStringSubmatch(err.Error())
	if found == nil {
		return err
	}
	lines := bytes.Split(input, []byte("\n"))
	number, convertErr := strconv.Atoi(found[1])
	if convertErr != nil || number < 1 || number > len(lines) {
		return err
	}
	const longest = 500
	line := string(lines[number-1])
	return fmt.Errorf("%w (%s)", err, strings.TrimSpace(line[:min(len(line), longest)]))
}
