package attack

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// podOn creates a pod of the tenant's service account that is bound to a node
// that does not exist.
func podOn(t *testing.T, client kubernetes.Interface, namespace, name, node string, volumes ...v1.VolumeSource) *v1.Pod {
	t.Helper()
	pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1.PodSpec{
		NodeName: node, ServiceAccountName: "tenant", Containers: []v1.Container{{Name: "c", Image: "coracle.internal/pause:1.0"}}}}
	for i, source := range volumes {
		pod.Spec.Volumes = append(pod.Spec.Volumes, v1.Volume{Name: "v" + strconv.Itoa(i), VolumeSource: source})
	}
	made, err := client.CoreV1().Pods(namespace).Create(t.Context(), pod, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return made
}

// TestClaimOfAnotherTenantsVolume checks that a claim that names another tenant's
// volume does not allow the node of the claim's pod to read that volume or its
// secret.
func TestClaimOfAnotherTenantsVolume(t *testing.T) {
	c := controlPlane(t)
	const node = "attack-claims"
	config, namespace := c.tenant(t, "admin")
	victim, theirs := c.tenant(t, "admin")
	mine, other := clientOf(t, config), clientOf(t, victim)
	if _, err := other.CoreV1().Secrets(theirs).Create(t.Context(), &v1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "stage"}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	volume := theirs
	create(t, c, "/api/v1/persistentvolumes", volume, `{"metadata":{"name":"`+volume+`"},"spec":{"capacity":{"storage":"1Gi"},"accessModes":["ReadWriteOnce"],"persistentVolumeReclaimPolicy":"Retain",
		"csi":{"driver":"attack.example.com","volumeHandle":"x","nodeStageSecretRef":{"namespace":"`+theirs+`","name":"stage"}},"claimRef":{"namespace":"`+theirs+`","name":"data"}}}`)
	claim := func(client kubernetes.Interface, in, name string) {
		t.Helper()
		body := `{"metadata":{"name":"` + name + `"},"spec":{"volumeName":"` + volume + `","storageClassName":"","accessModes":["ReadWriteOnce"],"resources":{"requests":{"storage":"1Gi"}}}}`
		var made v1.PersistentVolumeClaim
		if err := json.Unmarshal([]byte(body), &made); err != nil {
			t.Fatal(err)
		}
		if _, err := client.CoreV1().PersistentVolumeClaims(in).Create(t.Context(), &made, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	claim(other, theirs, "data")
	claim(mine, namespace, "data")
	kubelet := clientOf(t, c.kubelet(t, node))
	read := func() (ofVolume, ofSecret error) {
		_, ofVolume = kubelet.CoreV1().PersistentVolumes().Get(t.Context(), volume, metav1.GetOptions{})
		_, ofSecret = kubelet.CoreV1().Secrets(theirs).Get(t.Context(), "stage", metav1.GetOptions{})
		return ofVolume, ofSecret
	}
	podOn(t, mine, namespace, "p", node, v1.VolumeSource{PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{ClaimName: "data"}})
	eventually(t, "the node can read the claim of its own pod", func() error { // the authorizer learns of the pod by a watch
		_, err := kubelet.CoreV1().PersistentVolumeClaims(namespace).Get(t.Context(), "data", metav1.GetOptions{})
		return err
	})
	ofVolume, ofSecret := read()
	checkRefused(t, "another tenant's volume", ofVolume, http.StatusForbidden)
	checkRefused(t, "the secret of another tenant's volume", ofSecret, http.StatusForbidden)
	podOn(t, other, theirs, "p", node, v1.VolumeSource{PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{ClaimName: "data"}})
	eventually(t, "the node of the volume's tenant can read the volume and the secret", func() error {
		ofVolume, ofSecret := read()
		if ofVolume != nil {
			return ofVolume
		}
		return ofSecret
	})
}

// TestNodeExceedsItsPods has a node request tokens for other audiences and for
// pods of other nodes, create mirror pods with secrets, and write objects of
// other nodes.
func TestNodeExceedsItsPods(t *testing.T) {
	c := controlPlane(t)
	const self, other = "attack-self", "attack-other"
	_, namespace := c.tenant(t, "")
	mine, theirs := podOn(t, c.client, namespace, "mine", self), podOn(t, c.client, namespace, "theirs", other)
	kubelet := clientOf(t, c.kubelet(t, self))
	token := func(pod *v1.Pod, audiences ...string) error {
		_, err := kubelet.CoreV1().ServiceAccounts(namespace).CreateToken(t.Context(), "tenant", &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{
			Audiences: audiences, BoundObjectRef: &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Pod", Name: pod.Name, UID: pod.UID}}}, metav1.CreateOptions{})
		return err
	}
	eventually(t, "the token of the node's own pod", func() error { return token(mine) }) // the authorizer learns of the pod by a watch
	checkRefused(t, "a token for an audience of no volume of the pod", token(mine, "vault"), http.StatusForbidden)
	checkRefused(t, "a token for two audiences", token(mine, "", "vault"), http.StatusForbidden)
	checkRefused(t, "a token of another node's pod", token(theirs), http.StatusForbidden)
	node, err := kubelet.CoreV1().Nodes().Create(t.Context(), &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: self}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	remove(t, c, "/api/v1/nodes/"+self, "/api/v1/nodes/"+other)
	controller := true
	mirror := func(change func(*v1.Pod)) error {
		pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "mirror", Annotations: map[string]string{v1.MirrorPodAnnotationKey: "x"},
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: self, UID: node.UID, Controller: &controller}}},
			Spec: v1.PodSpec{NodeName: self, Containers: []v1.Container{{Name: "c", Image: "coracle.internal/pause:1.0"}}}}
		change(pod)
		_, err := kubelet.CoreV1().Pods(namespace).Create(t.Context(), pod, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		return err
	}
	projected := func(s v1.VolumeProjection) func(*v1.Pod) {
		return func(p *v1.Pod) {
			p.Spec.Volumes = []v1.Volume{{Name: "v", VolumeSource: v1.VolumeSource{Projected: &v1.ProjectedVolumeSource{Sources: []v1.VolumeProjection{s}}}}}
		}
	}
	eventually(t, "a mirror pod", func() error { return mirror(func(*v1.Pod) {}) })
	name := "x"
	for what, change := range map[string]func(*v1.Pod){
		"without an owner":        func(p *v1.Pod) { p.OwnerReferences = nil },
		"of a former node":        func(p *v1.Pod) { p.OwnerReferences[0].UID = "x" },
		"without the annotation":  func(p *v1.Pod) { p.Annotations = nil },
		"on another node":         func(p *v1.Pod) { p.Spec.NodeName = other },
		"with an account":         func(p *v1.Pod) { p.Spec.ServiceAccountName = "tenant" },
		"with a pull secret":      func(p *v1.Pod) { p.Spec.ImagePullSecrets = []v1.LocalObjectReference{{Name: "s"}} },
		"with a projected secret": projected(v1.VolumeProjection{Secret: &v1.SecretProjection{LocalObjectReference: v1.LocalObjectReference{Name: "s"}}}),
		"with a token":            projected(v1.VolumeProjection{ServiceAccountToken: &v1.ServiceAccountTokenProjection{Path: "t"}}),
		"with a trust bundle":     projected(v1.VolumeProjection{ClusterTrustBundle: &v1.ClusterTrustBundleProjection{Name: &name, Path: "b"}}),
		"with a certificate":      projected(v1.VolumeProjection{PodCertificate: &v1.PodCertificateProjection{SignerName: "example.com/one", KeyType: "ED25519", CredentialBundlePath: "c"}}),
		"with an inline CSI driver": func(p *v1.Pod) {
			p.Spec.Volumes = []v1.Volume{{Name: "v", VolumeSource: v1.VolumeSource{CSI: &v1.CSIVolumeSource{Driver: "attack.example.com"}}}}
		},
	} {
		checkRefused(t, "a mirror pod "+what, mirror(change), http.StatusForbidden)
	}
	ctx, core := t.Context(), kubelet.CoreV1()
	_, err = core.Nodes().Create(ctx, &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: other}}, metav1.CreateOptions{})
	checkRefused(t, "another node", err, http.StatusForbidden)
	checkRefused(t, "deleting its own node", core.Nodes().Delete(ctx, self, metav1.DeleteOptions{}), http.StatusForbidden)
	_, err = core.Pods(namespace).UpdateStatus(ctx, theirs, metav1.UpdateOptions{})
	checkRefused(t, "the status of another node's pod", err, http.StatusForbidden)
	checkRefused(t, "deleting another node's pod", core.Pods(namespace).Delete(ctx, theirs.Name, metav1.DeleteOptions{}), http.StatusForbidden)
	_, err = core.Secrets(namespace).List(ctx, metav1.ListOptions{})
	checkRefused(t, "all secrets of a pod's namespace", err, http.StatusForbidden)
	for what, patch := range map[string]string{
		"a restricted label": `{"metadata":{"labels":{"node-restriction.kubernetes.io/a":"b"}}}`,
		"a taint":            `{"spec":{"taints":[{"key":"a","effect":"NoSchedule"}]}}`,
		"an owner":           `{"metadata":{"ownerReferences":[{"apiVersion":"v1","kind":"Pod","name":"p","uid":"x"}]}}`,
	} {
		code, body := send(t, c.kubelet(t, self), http.MethodPatch, "/api/v1/nodes/"+self, patch, "Content-Type", "application/merge-patch+json")
		if code != http.StatusForbidden {
			t.Errorf("%s on the own node: %d %s", what, code, body)
		}
	}
}

// checkAddressRefused waits until the API server does not connect to the address of a
// node, which it learns by a watch.
func checkAddressRefused(t *testing.T, c *cluster, what, path string) {
	t.Helper()
	eventually(t, what, func() error {
		if code, body := send(t, c.admin, http.MethodGet, path, ""); code < http.StatusBadRequest || !strings.Contains(body, "address not allowed") {
			return fmt.Errorf("%d %.200s", code, body)
		}
		return nil
	})
}

// TestProxiesReachNoLocalAddresses checks that proxy, log and exec do not
// connect to the API server's port or to a local address that a node reports as
// its kubelet's.
func TestProxiesReachNoLocalAddresses(t *testing.T) {
	c := controlPlane(t)
	const self = "attack-proxy"
	_, namespace := c.tenant(t, "")
	kubelet := clientOf(t, c.kubelet(t, self))
	host, text, err := net.SplitHostPort(c.address())
	if err != nil {
		t.Fatal(err)
	}
	port, err := strconv.ParseInt(text, 10, 32)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := kubelet.CoreV1().Nodes().Create(t.Context(), &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: self}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	remove(t, c, "/api/v1/nodes/"+self)
	podOn(t, c.client, namespace, "p", self)
	say := func(address string, port int64) {
		t.Helper()
		status := fmt.Sprintf(`{"status":{"addresses":[{"type":"InternalIP","address":%q}],"daemonEndpoints":{"kubeletEndpoint":{"Port":%d}}}}`, address, port)
		if code, body := send(t, c.kubelet(t, self), http.MethodPatch, "/api/v1/nodes/"+self+"/status", status, "Content-Type", "application/merge-patch+json"); code != http.StatusOK {
			t.Fatalf("%d %s", code, body)
		}
	}
	logs := "/api/v1/namespaces/" + namespace + "/pods/p/log"
	for address, port := range map[string]int64{
		host: port, "127.0.0.1": port, "127.1.2.3": port, "localhost": port, "0.0.0.0": port, "169.254.169.254": 80, "::ffff:169.254.169.254": 80, "fe80::1": 80, "224.0.0.1": 80,
	} {
		say(address, port)
		for _, path := range []string{
			"/api/v1/nodes/" + self + "/proxy/api/v1/secrets", "/api/v1/nodes/" + self + ":" + strconv.FormatInt(port, 10) + "/proxy/api/v1/secrets", logs,
			"/api/v1/nodes/http:" + self + ":" + text + "/proxy/healthz",
		} {
			checkAddressRefused(t, c, fmt.Sprintf("a kubelet at %s:%d, %s", address, port, path), path)
		}
	}

	// A kubelet on this machine can be reached. It sees an identity that has no
	// permissions beyond the kubelet API.
	var mu sync.Mutex // guards groups
	var groups []string
	say("127.0.0.1", serveAsKubelet(t, c, self, func(_ http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		groups = r.TLS.PeerCertificates[0].Subject.Organization
	}))
	eventually(t, "a kubelet on loopback", func() error {
		if code, body := send(t, c.admin, http.MethodGet, "/api/v1/nodes/"+self+"/proxy/healthz", ""); code != http.StatusOK {
			return fmt.Errorf("%d %s", code, body)
		}
		return nil
	})
	mu.Lock()
	defer mu.Unlock()
	if slices.Contains(groups, "system:masters") {
		t.Errorf("the API server shows kubelets a certificate of %v", groups)
	}
	shown := c.user(t, "kube-apiserver-kubelet-client", groups...)
	_, err = clientOf(t, shown).CoreV1().Secrets("kube-system").List(t.Context(), metav1.ListOptions{})
	checkRefused(t, "secrets, as the API server towards kubelets", err, http.StatusForbidden)
}
