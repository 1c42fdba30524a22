package admission

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	nodev1 "k8s.io/api/node/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/utils/ptr"

	"github.com/coracle-io/coracle/internal/apiserver/objects"
	"github.com/coracle-io/coracle/internal/apiserver/objects/objectstest"
	"github.com/coracle-io/coracle/internal/feature"
)

func claim(class *string, size string, phase corev1.PersistentVolumeClaimPhase) *corev1.PersistentVolumeClaim {
	return &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "web", Name: "data"},
		Spec:   corev1.PersistentVolumeClaimSpec{StorageClassName: class, Resources: corev1.VolumeResourceRequirements{Requests: list("storage", size)}},
		Status: corev1.PersistentVolumeClaimStatus{Phase: phase}}
}

func TestStorage(t *testing.T) {
	class := func(name string, isDefault bool, age time.Duration, expands bool) *storagev1.StorageClass {
		c := &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: name, CreationTimestamp: metav1.NewTime(time.Unix(0, 0).Add(-age))}, AllowVolumeExpansion: &expands}
		if isDefault {
			c.Annotations = map[string]string{"storageclass.kubernetes.io/is-default-class": "true"}
		}
		return c
	}
	c := config(objectstest.NewMemory().Put(objects.StorageClasses, class("old", true, time.Hour, false), class("new", true, time.Minute, true), class("newest", false, 0, false)))
	for _, test := range []struct{ given, want *string }{{nil, ptr.To("new")}, {ptr.To(""), ptr.To("")}, {ptr.To("old"), ptr.To("old")}} {
		o := claim(test.given, "1Gi", "")
		run(t, newDefaultStorageClass(c), write{kind: "PersistentVolumeClaim", resource: "persistentvolumeclaims", obj: o})
		if *o.Spec.StorageClassName != *test.want {
			t.Errorf("%q, want %q", *o.Spec.StorageClassName, *test.want)
		}
	}
	o := claim(nil, "1Gi", "")
	for range 2 {
		run(t, storageObjectInUseProtection{}, write{kind: "PersistentVolumeClaim", resource: "persistentvolumeclaims", obj: o})
	}
	if len(o.Finalizers) != 1 || o.Finalizers[0] != "kubernetes.io/pvc-protection" {
		t.Error(o.Finalizers)
	}
	for name, test := range map[string]struct {
		class *string
		phase corev1.PersistentVolumeClaimPhase
		want  string
	}{
		"grows":        {ptr.To("new"), corev1.ClaimBound, ""},
		"not bound":    {ptr.To("new"), corev1.ClaimPending, `persistentvolumeclaims "data" is forbidden: Only bound persistent volume claims can be expanded`},
		"cannot":       {ptr.To("old"), corev1.ClaimBound, `persistentvolumeclaims "data" is forbidden: only dynamically provisioned pvc can be resized and the storageclass that provisions the pvc must support resize`},
		"has no class": {nil, corev1.ClaimBound, `persistentvolumeclaims "data" is forbidden: only dynamically provisioned pvc can be resized and the storageclass that provisions the pvc must support resize`},
	} {
		t.Run(name, func(t *testing.T) {
			w := write{op: admission.Update, kind: "PersistentVolumeClaim", resource: "persistentvolumeclaims",
				obj: claim(test.class, "2Gi", test.phase), old: claim(test.class, "1Gi", test.phase)}
			if got := run(t, newPersistentVolumeClaimResize(c), w); got != test.want {
				t.Errorf("%q, want %q", got, test.want)
			}
		})
	}
}

func TestNetworking(t *testing.T) {
	class := &networkingv1.IngressClass{ObjectMeta: metav1.ObjectMeta{Name: "nginx", Annotations: map[string]string{"ingressclass.kubernetes.io/is-default-class": "true"}}}
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1", Labels: map[string]string{corev1.LabelTopologyZone: "a", "other": "x"}}}
	c := config(objectstest.NewMemory().Put(objects.IngressClasses, class).Put(objects.Nodes, node))
	i := &networkingv1.Ingress{ObjectMeta: metav1.ObjectMeta{Namespace: "web", Name: "i"}}
	run(t, newDefaultIngressClass(c), write{kind: "Ingress", resource: "networking.k8s.io/ingresses", obj: i})
	if i.Spec.IngressClassName == nil || *i.Spec.IngressClassName != "nginx" {
		t.Errorf("%v", i.Spec.IngressClassName)
	}
	b := &corev1.Binding{ObjectMeta: metav1.ObjectMeta{Namespace: "web", Name: "p"}, Target: corev1.ObjectReference{Kind: "Node", Name: "n1"}}
	run(t, newPodTopologyLabels(c), write{kind: "Binding", resource: "pods/binding", obj: b})
	if len(b.Labels) != 1 || b.Labels[corev1.LabelTopologyZone] != "a" {
		t.Errorf("%v", b.Labels)
	}
	off, err := feature.Parse([]string{"PodTopologyLabelsAdmission=false"})
	if err != nil {
		t.Fatal(err)
	}
	c.Features = off
	if p := newPodTopologyLabels(c); p != nil {
		t.Errorf("there is a plugin though it is off: %v", p)
	}
	s := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "web", Name: "s"}, Spec: corev1.ServiceSpec{ExternalIPs: []string{"192.0.2.1"}}}
	if got := run(t, denyServiceExternalIPs{}, write{kind: "Service", resource: "services", obj: s}); got != `services "s" is forbidden: Use of external IPs is denied by admission control` {
		t.Error(got)
	}
	if got := run(t, denyServiceExternalIPs{}, write{op: admission.Update, kind: "Service", resource: "services", obj: s, old: s}); got != "" {
		t.Error(got)
	}
}

func TestAddressPools(t *testing.T) {
	for name, c := range map[string]struct {
		namespace, name, pool string
		op                    admission.Operation
		want                  string
	}{
		"good":           {"kube-system", "coracle-address-pools", "addresses: [192.0.2.0/28]", admission.Create, ""},
		"wrong":          {"kube-system", "coracle-address-pools", "addresses: [192.0.2.1/28]\nauto: true", admission.Create, `ConfigMap "coracle-address-pools" is invalid: [data[office].auto: Forbidden: unknown field, there are addresses, autoAssign, avoidBuggyIPs and namespaces, data[office].addresses[0]: Invalid value: "192.0.2.1/28": 192.0.2.1 is inside of the CIDR: want 192.0.2.0/28, or a range that begins there]`},
		"changed":        {"kube-system", "coracle-address-pools", "addresses: []", admission.Update, `ConfigMap "coracle-address-pools" is invalid: data[office].addresses: Required value: want ranges such as 192.0.2.240-192.0.2.250 or 192.0.2.64/28`},
		"another name":   {"kube-system", "pools", "addresses: []", admission.Create, ""},
		"of a namespace": {"web", "coracle-address-pools", "addresses: []", admission.Create, ""},
	} {
		m := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: c.namespace, Name: c.name}, Data: map[string]string{"office": c.pool}}
		if got := run(t, addressPools{}, write{op: c.op, kind: "ConfigMap", resource: "configmaps", obj: m}); got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
}

func TestRuntimeClass(t *testing.T) {
	class := &nodev1.RuntimeClass{ObjectMeta: metav1.ObjectMeta{Name: "vm"}, Overhead: &nodev1.Overhead{PodFixed: list("cpu", "100m")},
		Scheduling: &nodev1.Scheduling{NodeSelector: map[string]string{"vm": "yes"}, Tolerations: []corev1.Toleration{{Key: "vm"}}}}
	p := newRuntimeClass(config(objectstest.NewMemory().Put(objects.RuntimeClasses, class)))
	for name, test := range map[string]struct {
		change func(*corev1.Pod)
		want   string
	}{
		"class":          {func(p *corev1.Pod) { p.Spec.RuntimeClassName = ptr.To("vm") }, ""},
		"missing":        {func(p *corev1.Pod) { p.Spec.RuntimeClassName = ptr.To("no") }, `pods "p" is forbidden: pod rejected: RuntimeClass "no" not found`},
		"other overhead": {func(p *corev1.Pod) { p.Spec.RuntimeClassName, p.Spec.Overhead = ptr.To("vm"), list("cpu", "1") }, `pods "p" is forbidden: pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead`},
		"overhead alone": {func(p *corev1.Pod) { p.Spec.Overhead = list("cpu", "1") }, `pods "p" is forbidden: pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead`},
		"conflict": {func(p *corev1.Pod) {
			p.Spec.RuntimeClassName, p.Spec.NodeSelector = ptr.To("vm"), map[string]string{"vm": "no"}
		}, `pods "p" is forbidden: conflict: runtimeClass.scheduling.nodeSelector[vm] = yes; pod.spec.nodeSelector[vm] = no`},
	} {
		t.Run(name, func(t *testing.T) {
			o := pod(test.change)
			if got := run(t, p, write{kind: "Pod", resource: "pods", obj: o}); got != test.want {
				t.Fatalf("%q, want %q", got, test.want)
			}
			if test.want == "" && (o.Spec.NodeSelector["vm"] != "yes" || len(o.Spec.Tolerations) != 1 || describeList(o.Spec.Overhead) != "cpu=100m") {
				t.Errorf("%+v", o.Spec)
			}
		})
	}
}

// A toleration that another one contains is left out, so that it does not end
// the other one's time.
func TestMergedTolerations(t *testing.T) {
	every := corev1.Toleration{Operator: corev1.TolerationOpExists}
	exists := corev1.Toleration{Key: "k", Operator: corev1.TolerationOpExists}
	equal := corev1.Toleration{Key: "k", Operator: corev1.TolerationOpEqual, Value: "v"}
	unstated := corev1.Toleration{Key: "k", Value: "v"}
	other := corev1.Toleration{Key: "k", Operator: corev1.TolerationOpEqual, Value: "w"}
	execute := corev1.Toleration{Key: "k", Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute}
	short, long := execute, execute
	short.TolerationSeconds, long.TolerationSeconds = new(int64(10)), new(int64(20))
	for name, test := range map[string]struct{ pod, class, want []corev1.Toleration }{
		"none":               {nil, nil, nil},
		"of the pod":         {[]corev1.Toleration{equal}, nil, []corev1.Toleration{equal}},
		"of the class":       {nil, []corev1.Toleration{equal}, []corev1.Toleration{equal}},
		"the same":           {[]corev1.Toleration{equal}, []corev1.Toleration{equal}, []corev1.Toleration{equal}},
		"different":          {[]corev1.Toleration{equal}, []corev1.Toleration{other}, []corev1.Toleration{equal, other}},
		"the class has more": {[]corev1.Toleration{equal, execute}, []corev1.Toleration{exists}, []corev1.Toleration{exists}},
		"the pod has more":   {[]corev1.Toleration{every}, []corev1.Toleration{equal, short}, []corev1.Toleration{every}},
		"equal by default":   {[]corev1.Toleration{unstated}, []corev1.Toleration{equal}, []corev1.Toleration{equal}},
		"longer":             {[]corev1.Toleration{short}, []corev1.Toleration{long}, []corev1.Toleration{long}},
		"without an end":     {[]corev1.Toleration{execute}, []corev1.Toleration{long}, []corev1.Toleration{execute}},
		"other effect":       {[]corev1.Toleration{execute}, []corev1.Toleration{{Key: "k", Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoSchedule}}, []corev1.Toleration{execute, {Key: "k", Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoSchedule}}},
	} {
		if diff := cmp.Diff(test.want, mergeTolerations(test.pod, test.class)); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}

func signingRequest(t *testing.T, signer string, organization ...string) *certificatesv1.CertificateSigningRequest {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{Subject: pkix.Name{Organization: organization}}, key)
	if err != nil {
		t.Fatal(err)
	}
	return &certificatesv1.CertificateSigningRequest{ObjectMeta: metav1.ObjectMeta{Name: "r"},
		Spec: certificatesv1.CertificateSigningRequestSpec{SignerName: signer, Request: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der})}}
}

func TestCertificates(t *testing.T) {
	c := config(objectstest.NewMemory()) // whose authorizer denies everything
	const path, client = "certificates.k8s.io/certificatesigningrequests", "kubernetes.io/kube-apiserver-client"
	r := signingRequest(t, client, "devs")
	signed := r.DeepCopy()
	signed.Status.Certificate = []byte("x")
	u := &user.DefaultInfo{Name: "alice"}
	for name, test := range map[string]struct {
		plugin admission.Interface
		w      write
		want   string
	}{
		"approval": {newCertificateApproval(c), write{op: admission.Update, resource: path + "/approval", obj: r, old: r},
			`certificatesigningrequests.certificates.k8s.io "r" is forbidden: user not permitted to approve requests with signerName "kubernetes.io/kube-apiserver-client"`},
		"signing": {newCertificateSigning(c), write{op: admission.Update, resource: path + "/status", obj: signed, old: r},
			`certificatesigningrequests.certificates.k8s.io "r" is forbidden: user not permitted to sign requests with signerName "kubernetes.io/kube-apiserver-client"`},
		"status without certificate": {newCertificateSigning(c), write{op: admission.Update, resource: path + "/status", obj: r, old: r}, ""},
		"masters": {certificateSubjectRestriction{}, write{resource: path, obj: signingRequest(t, client, "system:masters")},
			`certificatesigningrequests.certificates.k8s.io "r" is forbidden: use of kubernetes.io/kube-apiserver-client signer with system:masters group is not allowed`},
		"another group":      {certificateSubjectRestriction{}, write{resource: path, obj: r}, ""},
		"masters, elsewhere": {certificateSubjectRestriction{}, write{resource: path, obj: signingRequest(t, "example.com/x", "system:masters")}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			test.w.kind, test.w.user = "CertificateSigningRequest", u
			if got := run(t, test.plugin, test.w); got != test.want {
				t.Errorf("%q, want %q", got, test.want)
			}
		})
	}
}
