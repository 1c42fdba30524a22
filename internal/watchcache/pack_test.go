package watchcache

import (
	"fmt"
	"reflect"
	"testing"
	"time"
	"unsafe"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

func event(i int) *corev1.Event {
	name := fmt.Sprint("pod-", i)
	return &corev1.Event{
		TypeMeta: metav1.TypeMeta{Kind: "Event", APIVersion: "v1"},
		ObjectMeta: metav1.ObjectMeta{
			Name: name + ".18c2", Namespace: "default", UID: types.UID(fmt.Sprint("uid-", i)), CreationTimestamp: metav1.Now(),
			ManagedFields: []metav1.ManagedFieldsEntry{
				{Manager: "kube-scheduler", Time: new(metav1.Now()), FieldsV1: metav1.NewFieldsV1(`{"f:note":{},"f:reason":{}}`)},
				{Manager: "kubectl", FieldsV1: metav1.NewFieldsV1(`{"f:labels":{}}`)},
			},
		},
		InvolvedObject: corev1.ObjectReference{Kind: "Pod", Namespace: "default", Name: name},
		Reason:         "FailedScheduling", EventTime: metav1.NewMicroTime(time.Now()), Series: &corev1.EventSeries{Count: int32(i)},
	}
}

func TestPackedObjectsAreEqual(t *testing.T) {
	p := newPacker()
	for i := range 3 * packObjects {
		pod := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("pod-", i), Labels: map[string]string{"n": fmt.Sprint(i), "": ""}, Finalizers: []string{}},
			Spec: corev1.PodSpec{
				Containers:   []corev1.Container{{Name: "a", Args: make([]string, i)}, {Name: "b", Resources: corev1.ResourceRequirements{Limits: corev1.ResourceList{"cpu": resource.MustParse("100m")}}}},
				NodeSelector: map[string]string{}, HostNetwork: true, Priority: new(int32(i)),
			},
		}
		e := event(i)
		if packed := p.object(pod); !reflect.DeepEqual(packed, pod) {
			t.Errorf("%+v has become %+v", pod, packed)
		}
		packed, ok := p.object(e).(*corev1.Event)
		if !ok || !reflect.DeepEqual(packed, e) {
			t.Fatalf("%+v has become %+v", e, packed)
		}
		if packed == e || packed.Series == e.Series || &packed.ManagedFields[0] == &e.ManagedFields[0] {
			t.Fatal("the copy shares memory with the original")
		}
		// Appending to a slice of a copy must not overwrite another object.
		if fields := packed.ManagedFields; cap(fields) != len(fields) || cap(rawOf(fields[0])) != len(rawOf(fields[0])) {
			t.Fatal("a slice has capacity beyond its length")
		}
	}
}

// TestPackedObjectsLieTogether checks that packed objects are contiguous in
// memory, and that equal strings are stored once.
func TestPackedObjectsLieTogether(t *testing.T) {
	entries := make([]*Entry, packObjects)
	for i := range entries {
		e := event(i)
		entries[i] = &Entry{Object: e, Namespace: e.Namespace, Name: e.Name, Revision: int64(i), size: i, index: []string{e.Reason, e.InvolvedObject.Name}}
	}
	address := func(e *Entry) uintptr { return reflect.ValueOf(e.Object).Pointer() }
	packed := packEntries(entries)
	for i, e := range packed {
		old, object := entries[i], e.Object.(*corev1.Event)
		if e.Position() != old.Position() || e.Revision != old.Revision || e.size != old.size || !e.packed || !reflect.DeepEqual(e.index, old.index) || !reflect.DeepEqual(object, old.Object) {
			t.Errorf("%+v has become %+v", old, e)
		}
		if i > 0 && address(e)-address(packed[i-1]) != reflect.TypeFor[corev1.Event]().Size() {
			t.Errorf("event %d does not follow the previous one in memory", i)
		}
		if unsafe.StringData(e.index[1]) != unsafe.StringData(object.InvolvedObject.Name) || &rawOf(object.ManagedFields[0])[0] != &rawOf(packed[0].Object.(*corev1.Event).ManagedFields[0])[0] {
			t.Errorf("event %d does not share its strings", i)
		}
	}
}

// rawOf returns the managed fields without copying them.
func rawOf(m metav1.ManagedFieldsEntry) []byte {
	return m.FieldsV1.Raw //nolint:staticcheck // the accessors return copies
}
