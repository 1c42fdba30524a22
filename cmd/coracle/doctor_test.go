package main

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"

	_ "github.com/coracle-io/coracle/internal/bubble"
	"github.com/coracle-io/coracle/internal/doctor"
	"github.com/coracle-io/coracle/internal/host"
)

// TestAdviceOnFailedStart checks that a start that failed is followed by what
// keeps a cluster from working here: its directory cannot be written.
func TestAdviceOnFailedStart(t *testing.T) {
	settings := newUpFlags().settings
	settings.Options.Name, settings.Options.DataDir, settings.Options.BindAddress = "advice", "/proc/coracle", "127.0.0.1"
	if _, err := doctor.Examine(host.NewRegistry(host.Root()), settings, warn); err != nil {
		t.Skip(err) // not root: the records cannot be read
	}
	failure := failedStart(errors.New("the cluster ended"))
	interrupted, cancel := context.WithCancel(t.Context())
	cancel()
	for _, c := range []struct {
		name    string
		ctx     context.Context
		failure error
		want    bool
	}{
		{"failed", t.Context(), failure, true},
		{"not ready in time", t.Context(), errors.New("the cluster is not ready"), true},
		{"succeeded", t.Context(), nil, false},
		{"interrupted", interrupted, failure, false},
		{"interrupted while it started", t.Context(), startError{errInterrupted}, false},
	} {
		var out bytes.Buffer
		err := reportFailure(c.ctx, &out, c.failure, func() (doctor.Report, error) { return doctor.Examine(host.NewRegistry(host.Root()), settings, warn) })
		if got := out.String(); strings.Contains(got, "\ncoracle doctor: disk: ") != c.want || !c.want && got != "" {
			t.Errorf("%s: %q", c.name, got)
		}
		if c.want && (!errors.Is(err, errReported) || !strings.HasPrefix(out.String(), "coracle: "+c.failure.Error()+"\n")) || !c.want && !errors.Is(err, c.failure) {
			t.Errorf("%s: %v, %q", c.name, err, out.String())
		}
	}
}

func TestDoctorRefusesUnknownOutput(t *testing.T) {
	if out, problem, code := execute(t, "doctor", "-o", "table"); code != exitFailed || problem != "coracle: --output=table: want json or yaml, or nothing for text\n" {
		t.Errorf("%q, %q, %d", out, problem, code)
	}
}

// A disk that hangs does not hide why a start failed.
func TestFailureIsReportedThoughTheDiskHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk := make(chan struct{})
		defer close(disk)
		var out bytes.Buffer
		err := reportFailure(t.Context(), &out, failedStart(errors.New("the cluster ended")), func() (doctor.Report, error) {
			if got := out.String(); got != "coracle: the cluster ended\n" {
				t.Errorf("before the examination %q is written", got)
			}
			<-disk
			return doctor.Report{}, nil
		})
		if want := "coracle: the cluster ended\ncoracle doctor: the examination has not ended after 10s, as when a disk hangs\n"; !errors.Is(err, errReported) || out.String() != want {
			t.Errorf("%v, %q", err, out.String())
		}
	})
}
