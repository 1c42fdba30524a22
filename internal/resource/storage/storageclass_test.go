package storage_test

import (
	"slices"
	"testing"
	"time"

	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/coracle-io/coracle/internal/defaultclass"
	"github.com/coracle-io/coracle/internal/resource"
	"github.com/coracle-io/coracle/internal/resource/storage"
)

// TestDefaultClassInLists checks that a list shows one default class, the newest
// of those that are marked.
func TestDefaultClassInLists(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	class := func(name string, age time.Duration, marked string) resource.Object {
		return &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{
			Name: name, CreationTimestamp: metav1.NewTime(now.Add(-age)), Annotations: map[string]string{defaultclass.StorageAnnotation: marked},
		}}
	}
	list := []resource.Object{class("a", time.Hour, "true"), class("b", time.Minute, "true"), class("c", time.Second, "false")}
	table := storage.StorageClasses().Table
	row := table.ListRow(slices.Values(list))
	for i, want := range []string{"a", "b (default)", "c"} {
		if got := row(list[i], now)[0]; got != want {
			t.Errorf("%v, want %s", got, want)
		}
	}
	if got := table.Row(list[1], now)[0]; got != "b" {
		t.Errorf("alone: %v", got)
	}
}
