package bootstrap

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/coracle-io/coracle/internal/resource"
	"github.com/coracle-io/coracle/internal/resource/all"
)

func TestOwn(t *testing.T) {
	versions := map[string]*resource.Version{}
	for _, r := range all.All() {
		versions[r.Kind] = r.Hub()
	}
	meta := metav1.ObjectMeta{Name: "it", UID: "1", CreationTimestamp: metav1.Now(), Labels: map[string]string{"a": "b"}}
	for _, c := range []struct {
		kind string
		obj  resource.Object
		want string
	}{
		{"ClusterRoleBinding", &rbacv1.ClusterRoleBinding{ObjectMeta: meta, RoleRef: rbacv1.RoleRef{Name: "x"}, Subjects: []rbacv1.Subject{{Name: "y"}}},
			`{"f:metadata":{"f:labels":{".":{},"f:a":{}}},"f:roleRef":{},"f:subjects":{}}`},
		{"Namespace", &corev1.Namespace{ObjectMeta: meta, Spec: corev1.NamespaceSpec{Finalizers: []corev1.FinalizerName{"kubernetes"}}, Status: corev1.NamespaceStatus{Phase: "Active"}},
			`{"f:metadata":{"f:labels":{".":{},"f:a":{}}}}`},
		{"FlowSchema", &flowcontrolv1.FlowSchema{Spec: flowcontrolv1.FlowSchemaSpec{
			PriorityLevelConfiguration: flowcontrolv1.PriorityLevelConfigurationReference{Name: "x"},
			DistinguisherMethod:        &flowcontrolv1.FlowDistinguisherMethod{Type: "ByUser"}, MatchingPrecedence: 5,
		}}, `{"f:spec":{"f:distinguisherMethod":{".":{},"f:type":{}},"f:matchingPrecedence":{},"f:priorityLevelConfiguration":{"f:name":{}}}}`},
	} {
		if err := own(versions[c.kind], c.obj, time.Now()); err != nil {
			t.Fatal(err)
		}
		entries := c.obj.GetManagedFields()
		if len(entries) != 1 || entries[0].Manager != "kube-apiserver" || entries[0].Operation != metav1.ManagedFieldsOperationUpdate ||
			entries[0].APIVersion != versions[c.kind].String() || entries[0].FieldsV1.GetRawString() != c.want {
			t.Errorf("%s: %v, want %s", c.kind, entries, c.want)
		}
	}
}
