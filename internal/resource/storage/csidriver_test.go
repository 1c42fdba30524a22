package storage_test

import (
	"testing"
	"time"

	storagev1 "k8s.io/api/storage/v1"

	"github.com/coracle-io/coracle/internal/feature"
	"github.com/coracle-io/coracle/internal/resource"
	"github.com/coracle-io/coracle/internal/resource/resourcetest"
	"github.com/coracle-io/coracle/internal/resource/storage"
)

// TestCSIDriverFeature checks that the field of a disabled feature is kept
// only if the stored object has it.
func TestCSIDriverFeature(t *testing.T) {
	off, err := feature.Parse([]string{"VolumeLimitScaling=false"})
	if err != nil {
		t.Fatal(err)
	}
	waits := true
	driver := func(wait *bool) *storagev1.CSIDriver {
		d := &storagev1.CSIDriver{Spec: storagev1.CSIDriverSpec{PreventPodSchedulingIfMissing: wait}}
		d.Name, d.ResourceVersion, d.Generation = "d.example", "1", 1
		storage.CSIDrivers().Hub().Default(d)
		return d
	}
	for name, test := range map[string]struct {
		features *feature.Set
		old      *storagev1.CSIDriver
		kept     bool
	}{
		"new":                     {nil, nil, true},
		"new without the feature": {off, nil, false},
		"put in without it":       {off, driver(nil), false},
		"there before":            {off, driver(&waits), true},
		"put in with the feature": {nil, driver(nil), true},
	} {
		r, request := storage.CSIDrivers(), &resource.RequestContext{Now: time.Unix(0, 0), Features: test.features}
		d := driver(&waits)
		var errs any
		if test.old == nil {
			d.ResourceVersion = ""
			errs = resourcetest.BeforeCreate(r, request, d)
		} else {
			errs = resourcetest.BeforeUpdate(r, request, d, test.old)
		}
		if kept := d.Spec.PreventPodSchedulingIfMissing != nil; kept != test.kept {
			t.Errorf("%s: kept: %t %v", name, kept, errs)
		}
	}
}
