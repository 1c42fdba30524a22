package shutdown

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/godbus/dbus/v5"
	"golang.org/x/sys/unix"
)

// fakeBus is a bus with logind on it, for one client.
type fakeBus struct {
	t       *testing.T
	conn    *net.UnixConn
	delay   uint64        // microseconds
	calls   chan string   // members that were called, with their arguments
	locked  *os.File      // reads the end of the client's lock
	serving chan struct{} // closed when the client has gone
	serial  uint32
}

// newFakeBus returns a connected client of a fake bus.
func newFakeBus(t *testing.T) (*fakeBus, *dbus.Conn) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "bus")
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: path})
	if err != nil {
		t.Fatal(err)
	}
	f := &fakeBus{t: t, delay: 5e6, calls: make(chan string, 16), serving: make(chan struct{})}
	go func() {
		defer close(f.serving)
		defer func() { _ = listener.Close() }()
		if f.conn, err = listener.AcceptUnix(); err == nil {
			f.serve()
		}
	}()
	conn, err := dbus.Connect("unix:path=" + path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(); <-f.serving })
	return f, conn
}

// serve authenticates the client and answers its calls.
func (f *fakeBus) serve() {
	in := bufio.NewReader(f.conn)
	for {
		line, err := in.ReadString('\n')
		if err != nil {
			return
		}
		answer := "OK 0123456789abcdef0123456789abcdef\r\n"
		switch {
		case strings.HasPrefix(line, "NEGOTIATE_UNIX_FD"):
			answer = "AGREE_UNIX_FD\r\n"
		case strings.HasPrefix(line, "BEGIN"):
			answer = ""
		case strings.Contains(line, "AUTH EXTERNAL"):
			answer = "DATA\r\n"
		case strings.Contains(line, "AUTH"): // asks for the mechanisms
			answer = "REJECTED EXTERNAL\r\n"
		}
		_, _ = f.conn.Write([]byte(answer))
		if answer == "" {
			break
		}
	}
	for {
		call, err := dbus.DecodeMessage(in)
		if err != nil {
			return
		}
		f.answer(call)
	}
}

func (f *fakeBus) answer(call *dbus.Message) {
	member, _ := call.Headers[dbus.FieldMember].Value().(string)
	var body []any
	switch member {
	case "Hello":
		body = []any{":1.1"}
	case "Get":
		body = []any{dbus.MakeVariant(f.delay)}
	case "KillUnit":
		f.delay = 30e6
	case "Inhibit":
		ends := make([]int, 2)
		if err := unix.Pipe2(ends, unix.O_CLOEXEC); err != nil {
			f.t.Error(err)
		}
		f.locked = os.NewFile(uintptr(ends[0]), "locked")
		f.send(&dbus.Message{Type: dbus.TypeMethodReply, Headers: map[dbus.HeaderField]dbus.Variant{
			dbus.FieldReplySerial: dbus.MakeVariant(call.Serial()), dbus.FieldSignature: dbus.MakeVariant(dbus.SignatureOf(dbus.UnixFDIndex(0))),
			dbus.FieldUnixFDs: dbus.MakeVariant(uint32(1)),
		}, Body: []any{dbus.UnixFDIndex(0)}}, ends[1])
		_ = unix.Close(ends[1])
		f.calls <- fmt.Sprint(member, call.Body)
		return
	}
	f.calls <- fmt.Sprint(member, call.Body)
	headers := map[dbus.HeaderField]dbus.Variant{dbus.FieldReplySerial: dbus.MakeVariant(call.Serial())}
	if len(body) > 0 {
		headers[dbus.FieldSignature] = dbus.MakeVariant(dbus.SignatureOf(body...))
	}
	f.send(&dbus.Message{Type: dbus.TypeMethodReply, Headers: headers, Body: body})
}

// send sends a message and files.
func (f *fakeBus) send(m *dbus.Message, fds ...int) {
	var raw bytes.Buffer
	if err := m.EncodeTo(&raw, binary.LittleEndian); err != nil {
		f.t.Error(err)
		return
	}
	f.serial++
	encoded := raw.Bytes()
	binary.LittleEndian.PutUint32(encoded[8:], f.serial)
	var rights []byte
	if len(fds) > 0 {
		rights = unix.UnixRights(fds...)
	}
	if _, _, err := f.conn.WriteMsgUnix(encoded, rights, nil); err != nil {
		f.t.Error(err)
	}
}

// signal reports that a shutdown begins or is cancelled.
func (f *fakeBus) signal(begins bool) {
	f.send(&dbus.Message{Type: dbus.TypeSignal, Headers: map[dbus.HeaderField]dbus.Variant{
		dbus.FieldPath: dbus.MakeVariant(dbus.ObjectPath(logindPath)), dbus.FieldInterface: dbus.MakeVariant(logindManager),
		dbus.FieldMember: dbus.MakeVariant(shutdownName), dbus.FieldSender: dbus.MakeVariant(":1.0"), dbus.FieldSignature: dbus.MakeVariant(dbus.SignatureOf(true)),
	}, Body: []any{begins}})
}

func (f *fakeBus) called(want string) {
	f.t.Helper()
	for {
		select {
		case got := <-f.calls:
			if strings.HasPrefix(got, want) {
				return
			}
		case <-time.After(2 * time.Minute):
			f.t.Fatalf("%s is not called", want)
		}
	}
}

func TestLogindOverDBus(t *testing.T) {
	f, conn := newFakeBus(t)
	override := filepath.Join(t.TempDir(), "logind.conf.d")
	l, err := newBus(t.Context(), conn, override)
	if err != nil {
		t.Fatal(err)
	}
	f.called("AddMatch")
	if d, err := l.InhibitDelay(t.Context()); err != nil || d != 5*time.Second {
		t.Errorf("the delay is %s (%v)", d, err)
	}
	if err := l.SetInhibitDelay(t.Context(), 30*time.Second); err != nil {
		t.Error(err)
	}
	f.called("KillUnit[systemd-logind.service all 1]")
	content, err := os.ReadFile(filepath.Join(override, "99-kubelet.conf"))
	if err != nil || !strings.Contains(string(content), "[Login]\nInhibitDelayMaxSec=30\n") {
		t.Errorf("the drop-in file is %q (%v)", content, err)
	}
	if d, err := l.InhibitDelay(t.Context()); err != nil || d != 30*time.Second {
		t.Errorf("the delay is then %s (%v)", d, err)
	}
	held, err := l.Inhibit(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	f.called("Inhibit[shutdown kubelet ")
	for _, begins := range []bool{true, false} {
		f.signal(begins)
		if got := <-l.Shutdowns(); got != begins {
			t.Errorf("a shutdown is reported as %t, want %t", got, begins)
		}
	}
	if err := held.Close(); err != nil {
		t.Error(err)
	}
	if n, err := f.locked.Read(make([]byte, 1)); n != 0 || err == nil {
		t.Error("the lock is still held")
	}
	_ = f.locked.Close()
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	if _, open := <-l.Shutdowns(); open {
		t.Error("a closed connection reports a shutdown")
	}
}
