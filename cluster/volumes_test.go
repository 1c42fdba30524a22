package cluster_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/component-helpers/storage/volume"

	"github.com/coracle-io/coracle/cluster"
	"github.com/coracle-io/coracle/cluster/clustertest"
)

// storage is a cluster with the nodes n1 and n2, on which the test acts as
// provisioner.
type storage struct {
	*testing.T
	ctx  context.Context
	kube kubernetes.Interface
}

func withStorage(t *testing.T, work func(s *storage)) {
	synctest.Test(t, func(t *testing.T) {
		c := clustertest.Start(t, cluster.Options{InProcess: true})
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		for _, name := range []string{"n1", "n2"} {
			makeNode(ctx, t, c.Client(), name)
			go keepAlive(ctx, c.Client(), name)
			node, err := c.Client().CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			metav1.SetMetaDataLabel(&node.ObjectMeta, corev1.LabelHostname, name)
			if _, err := c.Client().CoreV1().Nodes().Update(ctx, node, metav1.UpdateOptions{}); err != nil {
				t.Fatal(err)
			}
		}
		work(&storage{T: t, ctx: ctx, kube: c.Client()})
	})
}

func (s *storage) must(err error) {
	s.Helper()
	if err != nil {
		s.Fatal(err)
	}
}

// addClaim adds a class that waits for first consumers, and a claim of it.
func (s *storage) addClaim(provisioner string) {
	_, err := s.kube.StorageV1().StorageClasses().Create(s.ctx, &storagev1.StorageClass{
		ObjectMeta: metav1.ObjectMeta{Name: "class"}, Provisioner: provisioner, VolumeBindingMode: new(storagev1.VolumeBindingWaitForFirstConsumer),
	}, metav1.CreateOptions{})
	s.must(err)
	_, err = s.kube.CoreV1().PersistentVolumeClaims("default").Create(s.ctx, &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Name: "claim"},
		Spec: corev1.PersistentVolumeClaimSpec{
			StorageClassName: new("class"), AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}},
		},
	}, metav1.CreateOptions{})
	s.must(err)
}

// addVolume adds a local volume of a node.
func (s *storage) addVolume(name, node string, claim *corev1.ObjectReference) {
	_, err := s.kube.CoreV1().PersistentVolumes().Create(s.ctx, &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.PersistentVolumeSpec{
			StorageClassName: "class", AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}, ClaimRef: claim,
			Capacity:               corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")},
			PersistentVolumeSource: corev1.PersistentVolumeSource{Local: &corev1.LocalVolumeSource{Path: "/data"}},
			NodeAffinity: &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
				MatchExpressions: []corev1.NodeSelectorRequirement{{Key: corev1.LabelHostname, Operator: corev1.NodeSelectorOpIn, Values: []string{node}}},
			}}}},
		},
	}, metav1.CreateOptions{})
	s.must(err)
}

func (s *storage) addPod(name string) {
	_, err := s.kube.CoreV1().Pods("default").Create(s.ctx, &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.PodSpec{
			Containers: []corev1.Container{{Name: "c", Image: "web:1"}},
			Volumes: []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{
				PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "claim"},
			}}},
		},
	}, metav1.CreateOptions{})
	s.must(err)
}

func (s *storage) claim() *corev1.PersistentVolumeClaim {
	claim, err := s.kube.CoreV1().PersistentVolumeClaims("default").Get(s.ctx, "claim", metav1.GetOptions{})
	s.must(err)
	return claim
}

// state is the node of a pod, and the phase and volume of the claim.
func (s *storage) state(pod string) string {
	p, err := s.kube.CoreV1().Pods("default").Get(s.ctx, pod, metav1.GetOptions{})
	s.must(err)
	return fmt.Sprintf("%s on %q, claim %s %q", pod, p.Spec.NodeName, s.claim().Status.Phase, s.claim().Spec.VolumeName)
}

func (s *storage) becomes(pod, want string) {
	s.Helper()
	got := ""
	defer func() {
		if got != want {
			s.Logf("last seen: %s", got)
		}
	}()
	until(s.T, func() bool { got = s.state(pod); return got == want })
}

// A pod goes where the one volume for its claim is; scheduler and binder
// controller bind it together. Others with the claim follow.
func TestAPodGoesToItsLocalVolume(t *testing.T) {
	withStorage(t, func(s *storage) {
		s.addClaim(volume.NotSupportedProvisioner)
		s.addPod("first")
		s.becomes("first", `first on "", claim Pending ""`)
		s.addVolume("of-n2", "n2", nil)
		s.becomes("first", `first on "n2", claim Bound "of-n2"`)
		s.addVolume("of-n1", "n1", nil)
		s.addPod("second")
		s.becomes("second", `second on "n2", claim Bound "of-n2"`)
	})
}

// The scheduler selects a node, and another one when the provisioner gives up
// or when the node is gone. The pod waits for its volume.
func TestAPodWaitsForItsProvisioner(t *testing.T) {
	withStorage(t, func(s *storage) {
		s.addClaim("example.com/made")
		s.addPod("pod")
		selected := func() string { return s.claim().Annotations[volume.AnnSelectedNode] }
		until(t, func() bool {
			return selected() != "" && s.claim().Annotations[volume.AnnStorageProvisioner] == "example.com/made"
		})

		updated := s.claim() // as external-provisioner does when there is no room
		delete(updated.Annotations, volume.AnnSelectedNode)
		updated, err := s.kube.CoreV1().PersistentVolumeClaims("default").Update(s.ctx, updated, metav1.UpdateOptions{})
		s.must(err)
		until(t, func() bool { return selected() != "" && s.claim().ResourceVersion != updated.ResourceVersion })

		gone, other := selected(), map[string]string{"n1": "n2", "n2": "n1"}[selected()]
		s.must(s.kube.CoreV1().Nodes().Delete(s.ctx, gone, metav1.DeleteOptions{}))
		until(t, func() bool { return selected() == other })
		if got, want := s.state("pod"), `pod on "", claim Pending ""`; got != want {
			t.Errorf("%s, want %s", got, want)
		}
		s.addVolume("made", other, &corev1.ObjectReference{Kind: "PersistentVolumeClaim", APIVersion: "v1", Namespace: "default", Name: "claim", UID: s.claim().UID})
		s.becomes("pod", fmt.Sprintf("pod on %q, claim Bound %q", other, "made"))
	})
}
