package csivolume

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/utils/ptr"
)

func TestUniqueName(t *testing.T) {
	for _, handle := range []string{"vol-1", "a/b^c", ""} {
		name := UniqueName("driver.test", handle)
		if driver, got, ok := SplitUniqueName(name); !ok || driver != "driver.test" || got != handle {
			t.Errorf("%s is split into %q and %q, %v", name, driver, got, ok)
		}
	}
	if name := UniqueName("driver.test", "vol-1"); name != "kubernetes.io/csi/driver.test^vol-1" {
		t.Errorf("got %s", name)
	}
	for _, name := range []v1.UniqueVolumeName{"", "kubernetes.io/nfs/a^b", "a^b", "kubernetes.io/csi/a"} {
		if _, _, ok := SplitUniqueName(name); ok {
			t.Errorf("%q is the name of a volume of a driver", name)
		}
	}
}

func TestAttachmentName(t *testing.T) {
	name := AttachmentName("vol-1", "driver.test", "n")
	if name != "csi-e86879e88d70419b3646c127d82956aa0b343873f482724e469b17634053206c" {
		t.Errorf("got %s", name)
	}
	if !IsAttachmentName(name) {
		t.Errorf("%s is none", name)
	}
	for _, other := range []string{AttachmentName("vol-2", "driver.test", "n"), AttachmentName("vol-1", "other.test", "n"), AttachmentName("vol-1", "driver.test", "m")} {
		if other == name {
			t.Errorf("two volumes have the name %s", name)
		}
	}
	for _, other := range []string{"", "csi-", name[len("csi-"):], name[:len(name)-2], name + "00", "csi-" + name[len("csi-"):len(name)-1] + "g"} {
		if IsAttachmentName(other) {
			t.Errorf("%q is one", other)
		}
	}
}

func TestAttachRequired(t *testing.T) {
	object := func(required *bool) *storagev1.CSIDriver {
		return &storagev1.CSIDriver{Spec: storagev1.CSIDriverSpec{AttachRequired: required}}
	}
	if !AttachRequired(nil) || !AttachRequired(object(nil)) || !AttachRequired(object(ptr.To(true))) {
		t.Error("volumes are not attached")
	}
	if AttachRequired(object(ptr.To(false))) {
		t.Error("volumes of a driver that does not attach are attached")
	}
}
