package storage_test

import (
	"strings"
	"testing"
	"time"

	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/utils/ptr"

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
		if kept := ptr.Deref(d.Spec.PreventPodSchedulingIfMissing, false); kept != test.kept {
			t.Errorf("%s: kept: %t %v", name, kept, errs)
		}
	}
}

// TestNewCSIDriver checks the default of a field of a feature, and that a name
// may be longer than volumes can give.
func TestNewCSIDriver(t *testing.T) {
	off, err := feature.Parse([]string{"VolumeLimitScaling=false"})
	if err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		features *feature.Set
		want     *bool
	}{
		"enabled":  {nil, ptr.To(false)},
		"disabled": {off, nil},
	} {
		d := &storagev1.CSIDriver{}
		d.Name = strings.Repeat("d", 64) + ".example"
		r := storage.CSIDrivers()
		r.Hub().Default(d)
		if errs := resourcetest.BeforeCreate(r, &resource.RequestContext{Features: test.features}, d); len(errs) > 0 {
			t.Errorf("%s: %v", name, errs)
		}
		if got := d.Spec.PreventPodSchedulingIfMissing; !ptr.Equal(got, test.want) {
			t.Errorf("%s: default %v", name, got)
		}
	}
}
