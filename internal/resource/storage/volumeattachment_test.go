package storage_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/yaml"

	"github.com/coracle-io/coracle/internal/resource"
	"github.com/coracle-io/coracle/internal/resource/resourcetest"
	"github.com/coracle-io/coracle/internal/resource/storage"
)

// TestInlineVolume checks that an inline volume must be a CSI volume without
// fields that concern claims.
func TestInlineVolume(t *testing.T) {
	for spec, want := range map[string][]string{
		`{accessModes: [ReadWriteOnce], csi: {driver: d.example, volumeHandle: h}}`: nil,
		`{}`: {
			"csi: Required value: has to be specified in the context of inline volumes",
			"accessModes: Required value",
			": Required value: must specify a volume type",
		},
		`{accessModes: [ReadWriteOnce], csi: {driver: d.example, volumeHandle: h}, capacity: {storage: 1}, claimRef: {name: c},
 persistentVolumeReclaimPolicy: Delete, nodeAffinity: {}, storageClassName: s, volumeMode: Block}`: {
			"claimRef: Forbidden: may not be specified in the context of inline volumes",
			"capacity: Forbidden: may not be specified in the context of inline volumes",
			"persistentVolumeReclaimPolicy: Forbidden: may only be Retain in the context of inline volumes",
			"nodeAffinity: Forbidden: may not be specified in the context of inline volumes",
			"storageClassName: Forbidden: may not be specified in the context of inline volumes",
			"volumeMode: Forbidden: may not specify volumeMode other than Filesystem in the context of inline volumes",
		},
	} {
		a := &storagev1.VolumeAttachment{}
		a.Name = "a"
		if err := yaml.Unmarshal([]byte("{attacher: d.example, nodeName: n, source: {inlineVolumeSpec: "+spec+"}}"), &a.Spec); err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, err := range resourcetest.BeforeCreate(storage.VolumeAttachments(), &resource.RequestContext{}, a) {
			got = append(got, err.Error())
		}
		for i := range want {
			dot := "."
			if want[i][0] == ':' {
				dot = ""
			}
			want[i] = "spec.source.inlineVolumeSpec" + dot + want[i]
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: (-want +got):\n%s", spec, diff)
		}
	}
}

// TestLongAttachmentError checks the limit that the refusal of a message names.
func TestLongAttachmentError(t *testing.T) {
	attachment := func(message string) *storagev1.VolumeAttachment {
		a := &storagev1.VolumeAttachment{}
		a.Name, a.ResourceVersion = "a", "1"
		a.Spec = storagev1.VolumeAttachmentSpec{Attacher: "d.example", NodeName: "n", Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: new("v")}}
		a.Status.AttachError = &storagev1.VolumeError{Message: message}
		return a
	}
	r := storage.VolumeAttachments()
	for length, want := range map[int]string{
		1024: "",
		1025: "status.attachError.message: Too long: may not be more than 1024 bytes",
	} {
		errs := resourcetest.BeforeSubresourceUpdate(r, r.Subresource("status"), &resource.RequestContext{}, attachment(strings.Repeat("x", length)), attachment(""))
		got := ""
		for _, err := range errs {
			got += err.Error()
		}
		if got != want {
			t.Errorf("%d bytes: %s, want %s", length, got, want)
		}
	}
}

// TestAttachers checks the errors of attachers, which come last for new objects,
// and the error of a changed spec.
func TestAttachers(t *testing.T) {
	attachment := func(attacher, node string) *storagev1.VolumeAttachment {
		a := &storagev1.VolumeAttachment{}
		a.Name, a.ResourceVersion = "a", "1"
		a.Spec = storagev1.VolumeAttachmentSpec{Attacher: attacher, NodeName: node, Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: new("v")}}
		return a
	}
	const caseless = "an RFC 1123 subdomain must consist of alphanumeric characters"
	const lower = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters"
	for _, test := range []struct {
		name        string
		stored, now *storagev1.VolumeAttachment
		want        []string // the beginnings of the errors
	}{
		{"in capitals", nil, attachment("D.example", "n"), nil},
		{"none, and no node", nil, attachment("", ""), []string{`spec.nodeName: Invalid value: ""`, "spec.attacher: Required value"}},
		{"no name", nil, attachment("a b", "n"), []string{`spec.attacher: Invalid value: "a b": ` + caseless}},
		{"long", nil, attachment(strings.Repeat("d", 64), "n"), []string{"spec.attacher: Too long: may not be more than 63 characters"}},
		{"as before", attachment("d", "n"), attachment("d", "n"), nil},
		{"another", attachment("d", "n"), attachment("e", "n"), []string{"spec: Invalid value: null: field is immutable"}},
		{
			"another that is no name", attachment("d", "n"), attachment("a b", "n"),
			[]string{`spec.attacher: Invalid value: "a b": ` + lower, "spec: Invalid value: null: field is immutable"},
		},
	} {
		r, request := storage.VolumeAttachments(), &resource.RequestContext{}
		var errs field.ErrorList
		if test.stored == nil {
			errs = resourcetest.BeforeCreate(r, request, test.now)
		} else {
			errs = resourcetest.BeforeUpdate(r, request, test.now, test.stored)
		}
		fits := len(errs) == len(test.want)
		for i := range errs {
			fits = fits && strings.HasPrefix(errs[i].Error(), test.want[i])
		}
		if !fits {
			t.Errorf("%s: %v, want %q", test.name, errs, test.want)
		}
	}
}
