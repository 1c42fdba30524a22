package storagemigration

import (
	"context"
	"slices"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/metadata"

	"github.com/coracle-io/coracle/internal/controller/kinds"
)

// forgetful has two pages of objects, and has forgotten the version of the first when
// it is asked for the second.
type forgetful struct {
	metadata.ResourceInterface
	written []string
}

func (f *forgetful) Resource(schema.GroupVersionResource) metadata.Getter { return f }
func (f *forgetful) Namespace(string) metadata.ResourceInterface          { return f }

func (f *forgetful) List(_ context.Context, o metav1.ListOptions) (*metav1.PartialObjectMetadataList, error) {
	page := func(name, next string) *metav1.PartialObjectMetadataList {
		return &metav1.PartialObjectMetadataList{
			ListMeta: metav1.ListMeta{Continue: next},
			Items:    []metav1.PartialObjectMetadata{{ObjectMeta: metav1.ObjectMeta{Name: name}}},
		}
	}
	switch o.Continue {
	case "":
		return page("first", "then"), nil
	case "now":
		return page("second", ""), nil
	}
	expired := apierrors.NewResourceExpired("too old")
	expired.ErrStatus.Continue = "now"
	return nil, expired
}

func (f *forgetful) Patch(_ context.Context, name string, _ types.PatchType, _ []byte, _ metav1.PatchOptions, _ ...string) (*metav1.PartialObjectMetadata, error) {
	f.written = append(f.written, name)
	return &metav1.PartialObjectMetadata{}, nil
}

// A migration that takes longer than the history lasts continues where it was. From
// the start, it would never end.
func TestMigrateBeyondHistory(t *testing.T) {
	objects := &forgetful{}
	if err := (&migrator{objects: objects}).migrate(t.Context(), &kinds.Kind{}); err != nil {
		t.Fatal(err)
	}
	if want := []string{"first", "second"}; !slices.Equal(objects.written, want) {
		t.Errorf("wrote %q, want %q", objects.written, want)
	}
}
