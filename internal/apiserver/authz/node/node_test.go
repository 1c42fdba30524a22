package node

import (
	"testing"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/coracle-io/coracle/internal/apiserver/objects"
)

func fixture() *objects.Memory {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "web", Name: "p"},
		Spec: corev1.PodSpec{
			NodeName: "n1", ServiceAccountName: "default",
			ImagePullSecrets: []corev1.LocalObjectReference{{Name: "pull"}},
			Containers: []corev1.Container{{
				EnvFrom: []corev1.EnvFromSource{{ConfigMapRef: &corev1.ConfigMapEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: "env"}}}},
				Env:     []corev1.EnvVar{{ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{LocalObjectReference: corev1.LocalObjectReference{Name: "key"}}}}},
			}},
			Volumes: []corev1.Volume{
				{Name: "a", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data"}}},
				{Name: "b", VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{
					{ConfigMap: &corev1.ConfigMapProjection{LocalObjectReference: corev1.LocalObjectReference{Name: "kube-root-ca.crt"}}}}}}},
				{Name: "scratch", VolumeSource: corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{}}},
				{Name: "c", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "greedy"}}},
				{Name: "d", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "pending"}}},
				{Name: "e", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "again"}}},
			},
		},
	}
	mirror := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "web", Name: "mirror", Annotations: map[string]string{corev1.MirrorPodAnnotationKey: "x"}},
		Spec: corev1.PodSpec{NodeName: "n1", ServiceAccountName: "admin", Volumes: []corev1.Volume{
			{VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "wanted"}}}}},
	}
	claim := func(name string, uid types.UID, volume string) *corev1.PersistentVolumeClaim {
		return &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "web", Name: name, UID: uid}, Spec: corev1.PersistentVolumeClaimSpec{VolumeName: volume}}
	}
	volume := func(name, secret string, of *corev1.ObjectReference) *corev1.PersistentVolume {
		return &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.PersistentVolumeSpec{ClaimRef: of, PersistentVolumeSource: corev1.PersistentVolumeSource{
			CSI: &corev1.CSIPersistentVolumeSource{NodeStageSecretRef: &corev1.SecretReference{Namespace: "storage", Name: secret},
				ControllerPublishSecretRef: &corev1.SecretReference{Namespace: "storage", Name: "controller"}}}}}
	}
	return objects.NewMemory().Put(objects.Pods, pod, mirror).
		Put(objects.Claims, claim("data", "u1", "pv1"), claim("greedy", "u2", "pv2"), claim("pending", "u3", ""), claim("again", "u4", "pv4")).
		Put(objects.PersistentVolumes,
			volume("pv1", "stage", &corev1.ObjectReference{Namespace: "web", Name: "data", UID: "u1"}),
			volume("pv2", "other-tenant", &corev1.ObjectReference{Namespace: "shop", Name: "data", UID: "u9"}),
			volume("pv3", "reserved", &corev1.ObjectReference{Namespace: "web", Name: "pending"}),
			volume("pv4", "former", &corev1.ObjectReference{Namespace: "web", Name: "again", UID: "u0"}),
			volume("pv5", "free", nil)).
		Put(objects.VolumeAttachments, &storagev1.VolumeAttachment{ObjectMeta: metav1.ObjectMeta{Name: "va"}, Spec: storagev1.VolumeAttachmentSpec{NodeName: "n1"}}).
		Put(objects.PodCertificates, &certificatesv1.PodCertificateRequest{ObjectMeta: metav1.ObjectMeta{Namespace: "web", Name: "pcr"}, Spec: certificatesv1.PodCertificateRequestSpec{NodeName: "n1"}})
}

func TestNodes(t *testing.T) {
	z := New(fixture(), []rbacv1.PolicyRule{
		{Verbs: []string{"create", "get", "list", "watch"}, APIGroups: []string{""}, Resources: []string{"nodes"}},
		{Verbs: []string{"get"}, APIGroups: []string{""}, Resources: []string{"services"}},
	})
	const alone, unrelated = "no relationship found between node 'n1' and this object", "no relationship found between node 'n2' and this object"
	own := fields.Requirements{{Field: "spec.nodeName", Operator: "=", Value: "n1"}}
	res := func(verb, resource, namespace, name string) authorizer.AttributesRecord {
		return authorizer.AttributesRecord{Verb: verb, Resource: resource, Namespace: namespace, Name: name, ResourceRequest: true}
	}
	group := func(g string, a authorizer.AttributesRecord) authorizer.AttributesRecord { a.APIGroup = g; return a }
	sub := func(s string, a authorizer.AttributesRecord) authorizer.AttributesRecord { a.Subresource = s; return a }
	for _, test := range []struct {
		what string
		a    authorizer.AttributesRecord
		n1   string // reason; "ok" is allowed
		n2   string
	}{
		{"image pull secret", res("get", "secrets", "web", "pull"), "ok", unrelated},
		{"secret in env", res("get", "secrets", "web", "key"), "ok", unrelated},
		{"secret of a volume", res("get", "secrets", "storage", "stage"), "ok", unrelated},
		{"other secret", res("get", "secrets", "web", "x"), "no relationship found between node 'n1' and this object", unrelated},
		{"all secrets", res("list", "secrets", "web", ""), "No Object name found", "No Object name found"},
		{"secret update", res("update", "secrets", "web", "pull"), "can only read resources of this type", "can only read resources of this type"},
		{"projected config map", res("watch", "configmaps", "web", "kube-root-ca.crt"), "ok", unrelated},
		{"config map in env", res("get", "configmaps", "web", "env"), "ok", unrelated},
		{"claim", res("get", "persistentvolumeclaims", "web", "data"), "ok", unrelated},
		{"ephemeral claim", res("get", "persistentvolumeclaims", "web", "p-scratch"), "ok", unrelated},
		{"claim list", res("list", "persistentvolumeclaims", "web", "data"), "can only get individual resources of this type", "can only get individual resources of this type"},
		{"volume", res("get", "persistentvolumes", "", "pv1"), "ok", unrelated},
		{"another tenant's volume", res("get", "persistentvolumes", "", "pv2"), alone, unrelated},
		{"secret of another tenant's volume", res("get", "secrets", "storage", "other-tenant"), alone, unrelated},
		{"volume kept for a pending claim", res("get", "persistentvolumes", "", "pv3"), "ok", unrelated},
		{"secret of a volume kept for a pending claim", res("get", "secrets", "storage", "reserved"), alone, unrelated},
		{"volume of a former claim", res("get", "persistentvolumes", "", "pv4"), alone, unrelated},
		{"secret of a former claim's volume", res("get", "secrets", "storage", "former"), alone, unrelated},
		{"free volume", res("get", "persistentvolumes", "", "pv5"), alone, unrelated},
		{"secret of a controller", res("get", "secrets", "storage", "controller"), alone, unrelated},
		{"secret of a mirror pod", res("get", "secrets", "web", "wanted"), alone, unrelated},
		{"token of a mirror pod's account", sub("token", res("create", "serviceaccounts", "web", "admin")), alone, unrelated},
		{"mirror pod", res("get", "pods", "web", "mirror"), "ok", unrelated},
		{"certificate request", group("certificates.k8s.io", res("get", "podcertificaterequests", "web", "pcr")), "ok", unrelated},
		{"status of a certificate request", group("certificates.k8s.io", sub("status", res("update", "podcertificaterequests", "web", "pcr"))),
			"nodes may not access the status subresource of PodCertificateRequests", "nodes may not access the status subresource of PodCertificateRequests"},
		{"all certificate requests", group("certificates.k8s.io", res("list", "podcertificaterequests", "", "")),
			"nodes may only list/watch PodCertificateRequests with field selector 'spec.nodeName=n1'", "nodes may only list/watch PodCertificateRequests with field selector 'spec.nodeName=n2'"},
		{"deletion of a certificate request", group("certificates.k8s.io", res("delete", "podcertificaterequests", "web", "pcr")),
			"nodes may not delete PodCertificateRequests", "nodes may not delete PodCertificateRequests"},
		{"trust bundles", group("certificates.k8s.io", res("list", "clustertrustbundles", "", "")), "ok", "ok"},
		{"change of a trust bundle", group("certificates.k8s.io", res("update", "clustertrustbundles", "", "ca")),
			"nodes may only get, list, or watch ClusterTrustBundles", "nodes may only get, list, or watch ClusterTrustBundles"},
		{"attachment", group("storage.k8s.io", res("get", "volumeattachments", "", "va")), "ok", unrelated},
		{"token", sub("token", res("create", "serviceaccounts", "web", "default")), "ok", unrelated},
		{"token of another account", sub("token", res("create", "serviceaccounts", "web", "builder")), "no relationship found between node 'n1' and this object", unrelated},
		{"lease", group("coordination.k8s.io", res("update", "leases", "kube-node-lease", "n1")), "ok", "can only access node lease with the same name as the requesting node"},
		{"other lease", group("coordination.k8s.io", res("update", "leases", "kube-system", "n1")),
			`can only access leases in the "kube-node-lease" system namespace`, `can only access leases in the "kube-node-lease" system namespace`},
		{"csi node", group("storage.k8s.io", res("patch", "csinodes", "", "n1")), "ok", "can only access CSINode with the same name as the requesting node"},
		{"node", res("get", "nodes", "", "n1"), "ok", "node 'n2' cannot read 'n1', only its own Node object"},
		{"nodes", res("list", "nodes", "", ""), "node 'n1' cannot read all nodes, only its own Node object", "node 'n2' cannot read all nodes, only its own Node object"},
		{"pod", res("get", "pods", "web", "p"), "ok", unrelated},
		{"pods", res("list", "pods", "", ""), "can only list/watch pods with spec.nodeName field selector", "can only list/watch pods with spec.nodeName field selector"},
		{"own pods", authorizer.AttributesRecord{Verb: "watch", Resource: "pods", ResourceRequest: true, FieldSelectorRequirements: own},
			"ok", "can only list/watch pods with spec.nodeName field selector"},
		{"general rule", res("get", "services", "web", "s"), "ok", "ok"},
		{"nothing", res("get", "deployments", "web", "s"), "", ""},
	} {
		t.Run(test.what, func(t *testing.T) {
			for node, want := range map[string]string{"n1": test.n1, "n2": test.n2} {
				a := test.a
				a.User = &user.DefaultInfo{Name: "system:node:" + node, Groups: []string{"system:nodes"}}
				d, got, err := z.Authorize(t.Context(), a)
				if d == authorizer.DecisionAllow {
					got = "ok"
				}
				if got != want || err != nil {
					t.Errorf("%s: %q %v, want %q", node, got, err, want)
				}
			}
		})
	}
	a := res("get", "secrets", "web", "pull")
	a.User = &user.DefaultInfo{Name: "system:node:n1"}
	if d, _, _ := z.Authorize(t.Context(), a); d != authorizer.DecisionNoOpinion {
		t.Error("a user with a node's name but not in system:nodes was taken for a node")
	}
}
