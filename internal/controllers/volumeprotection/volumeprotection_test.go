package volumeprotection

import (
	"fmt"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/coracle-io/coracle/internal/controller/controllertest"
)

func TestClaimStaysWhileAPodUsesIt(t *testing.T) {
	now := metav1.Now()
	claim := func(name string, deleted *metav1.Time, finalizers ...string) *v1.PersistentVolumeClaim {
		return &v1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, DeletionTimestamp: deleted, Finalizers: finalizers}}
	}
	pod := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "user"},
		Spec: v1.PodSpec{NodeName: "n", Volumes: []v1.Volume{{VolumeSource: v1.VolumeSource{
			PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{ClaimName: "used"},
		}}}},
	}
	c := controllertest.New(t, claim("fresh", nil), claim("used", &now, claimFinalizer), claim("unused", &now, claimFinalizer, "other"), pod)
	c.Run(Claims())
	finalizers := func() string {
		list, err := c.Fake.CoreV1().PersistentVolumeClaims("default").List(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		out := ""
		for _, claim := range list.Items {
			out += fmt.Sprint(claim.Name, claim.Finalizers, " ")
		}
		return out
	}
	controllertest.Eventually(t, finalizers, "fresh[kubernetes.io/pvc-protection] unused[other] used[kubernetes.io/pvc-protection] ")
	if err := c.Fake.CoreV1().Pods("default").Delete(t.Context(), "user", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	controllertest.Eventually(t, finalizers, "fresh[kubernetes.io/pvc-protection] unused[other] used[] ")
}
