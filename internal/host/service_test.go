package host

import (
	"os"
	"strings"
	"testing"
)

func TestUnitOf(t *testing.T) {
	for groups, want := range map[string]string{
		"0::/system.slice/coracle.service\n":                                        "coracle.service",
		"0::/system.slice/coracle.service/supervisor\n":                             "coracle.service",
		"4:memory:/a.service\n1:name=systemd:/system.slice/coracle@b.service\n0::/": "coracle@b.service",
		"0::/user.slice/user-0.slice/session-3.scope\n":                             "",
		"0::/\n": "", "": "", "nonsense": "",
	} {
		if got := unitOf(groups); got != want {
			t.Errorf("%q: %q, want %q", groups, got, want)
		}
	}
}

// A process that systemd would start again must be ended by systemd.
func TestRefuseService(t *testing.T) {
	start, err := StartTime(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	rec := Record{Occupied: Occupied{Name: "a"}, Unit: "a.service", PID: os.Getpid(), PIDStart: start}
	if err := rec.RefuseService("disable --now"); err == nil || !strings.Contains(err.Error(), "systemctl disable --now a.service") {
		t.Errorf("one that runs: %v", err)
	}
	ended, alone := rec, rec
	ended.PIDStart++
	alone.Unit = ""
	for what, rec := range map[string]Record{"one that has ended": ended, "one of no unit": alone} {
		if err := rec.RefuseService("stop"); err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
}
