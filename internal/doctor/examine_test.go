package doctor

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/coracle-io/coracle/internal/host"
)

// A cluster's record or settings that cannot be read are a finding, and the rest
// is examined nevertheless.
func TestExamineGoesOnWithoutSettings(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("run directories need root")
	}
	const name = "test-doctor-settings"
	for check, prepare := range map[string]func(registry host.Registry, dir string) error{
		"settings": func(registry host.Registry, dir string) error {
			return registry.Put(host.Record{Occupied: host.Occupied{Name: name, DataDir: dir}, Settled: true})
		},
		"records": func(registry host.Registry, _ string) error {
			if err := os.MkdirAll(registry.Folder(), 0o700); err != nil {
				return err
			}
			return os.WriteFile(filepath.Join(registry.Folder(), name+".json"), []byte("{"), 0o600)
		},
	} {
		registry, dir := host.NewRegistry(t.TempDir()), t.TempDir()
		if err := prepare(registry, dir); err != nil {
			t.Fatal(err)
		}
		settings := host.NewSettings()
		settings.Options.Name, settings.Options.DataDir, settings.Options.BindAddress, settings.Nodes = name, dir, "127.0.0.1", 0
		report, err := Examine(registry, settings, func(err error) { t.Log(err) })
		if err != nil {
			t.Errorf("%s: %v", check, err)
			continue
		}
		if first := report.Findings[0]; first.Check != check || first.Status != Failed || len(report.Findings) < 5 {
			t.Errorf("%s: %+v", check, report.Findings)
		}
	}
}
