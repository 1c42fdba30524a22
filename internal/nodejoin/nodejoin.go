// Package nodejoin prepares a cluster for nodes that join with a bootstrap token,
// as `kubeadm init phase bootstrap-token` does:
//
//	node ──GET cluster-info, without credentials──► URL and authority, signed by the token
//	node ──CertificateSigningRequest, with the token──► approved and signed: its client certificate
//	node ──CertificateSigningRequest, with the certificate──► the next certificate
//
// The rights for that are in roles and bindings with kubeadm's names. Those whose
// names begin with coracle: are for the nodes of coracle join, and for all others
// that use them: the network of the cluster, serving certificates that are approved,
// and what the proxy and the network policies of a node read.
package nodejoin

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/url"
	"regexp"
	"slices"
	"strconv"

	v1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/client-go/util/retry"

	"github.com/coracle-io/coracle/internal/bootstraptoken"
)

// Cluster is what a node must know of a cluster.
type Cluster struct {
	// Server is the URL of the API server for nodes. If it is empty, Prepare sets
	// it to the one in cluster-info or, if there is none, to that of an endpoint of
	// the Service default/kubernetes.
	Server string
	// Authority has the certificates that verify the API server, in PEM.
	Authority []byte
}

// Prepare writes cluster-info, and creates the roles and bindings that are
// missing. It leaves existing ones as they are.
func (c *Cluster) Prepare(ctx context.Context, client kubernetes.Interface) error {
	given := c.Server
	if err := again(func() error { return c.writeInfo(ctx, client, given) }); err != nil {
		return err
	}
	return allow(ctx, client)
}

// again calls write, and again when others have written cluster-info meanwhile.
func again(write func() error) error {
	err := retry.OnError(retry.DefaultRetry, func(err error) bool { return apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) }, write)
	if err != nil {
		return fmt.Errorf("write ConfigMap %s/%s: %w", metav1.NamespacePublic, bootstraptoken.ClusterInfo, err)
	}
	return nil
}

// chosenServer is the annotation of cluster-info with its URL if nobody gave that, or "" if
// somebody did. A URL that was chosen follows the API server.
const chosenServer = "coracle.io/chosen-server"

// writeInfo makes cluster-info what it should be. given is the URL that somebody has given,
// or "".
func (c *Cluster) writeInfo(ctx context.Context, client kubernetes.Interface, given string) error {
	infos := client.CoreV1().ConfigMaps(metav1.NamespacePublic)
	have, err := infos.Get(ctx, bootstraptoken.ClusterInfo, metav1.GetOptions{})
	missing := apierrors.IsNotFound(err)
	if err != nil && !missing {
		return err
	}
	next := &v1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: bootstraptoken.ClusterInfo, Namespace: metav1.NamespacePublic}}
	if !missing {
		next = have.DeepCopy()
	}
	if c.Server = serverIn(next); given != "" {
		c.Server = given
		metav1.SetMetaDataAnnotation(&next.ObjectMeta, chosenServer, "")
	} else if c.Server == "" {
		if c.Server, err = endpoint(ctx, client); err != nil {
			return err
		}
		metav1.SetMetaDataAnnotation(&next.ObjectMeta, chosenServer, c.Server)
	}
	if err := c.set(next); err != nil {
		return err
	}
	if missing {
		_, err = infos.Create(ctx, next, metav1.CreateOptions{})
		return err
	}
	return update(ctx, client, have, next)
}

// Refresh gives cluster-info the URL of the API server, and its authority if there is one
// here, after they have changed. It leaves a URL that somebody gave or has changed, and one
// whose host is none of own, the addresses that this API server has or had: it is another
// server's. Without cluster-info, Refresh does nothing.
func (c *Cluster) Refresh(ctx context.Context, client kubernetes.Interface, own []net.IP) error {
	authority := c.Authority
	return again(func() error {
		have, err := client.CoreV1().ConfigMaps(metav1.NamespacePublic).Get(ctx, bootstraptoken.ClusterInfo, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		if err != nil || !c.follows(have, own) {
			return err
		}
		// Somebody may have added other authorities.
		if c.Authority = authorityIn(have); !bytes.Contains(c.Authority, bytes.TrimSpace(authority)) {
			c.Authority = authority
		}
		next := have.DeepCopy()
		metav1.SetMetaDataAnnotation(&next.ObjectMeta, chosenServer, c.Server)
		if err := c.set(next); err != nil {
			return err
		}
		return update(ctx, client, have, next)
	})
}

// follows reports whether the URL in cluster-info is one that the API server at c.Server has
// or had, and that nobody gave. Earlier versions did not say who gave it: then it is one that
// differs in its host alone.
func (c *Cluster) follows(info *v1.ConfigMap, own []net.IP) bool {
	server := serverIn(info)
	is, err := url.Parse(server)
	now, err2 := url.Parse(c.Server)
	if err != nil || err2 != nil {
		return false
	}
	ip := net.ParseIP(is.Hostname())
	if ip == nil || !ip.IsGlobalUnicast() || !slices.ContainsFunc(own, ip.Equal) {
		return false
	}
	if chosen, said := info.Annotations[chosenServer]; said {
		return chosen == server
	}
	return is.Scheme == now.Scheme && is.Port() == now.Port()
}

// set sets the URL and the authority in cluster-info, and leaves what else is there.
func (c *Cluster) set(info *v1.ConfigMap) error {
	config := configIn(info)
	entry := config.Clusters[""]
	if entry != nil && entry.Server == c.Server && bytes.Equal(entry.CertificateAuthorityData, c.Authority) {
		return nil
	}
	if entry == nil {
		entry = clientcmdapi.NewCluster()
	}
	entry.Server, entry.CertificateAuthorityData = c.Server, c.Authority
	if config.Clusters == nil {
		config.Clusters = map[string]*clientcmdapi.Cluster{}
	}
	config.Clusters[""] = entry
	content, err := clientcmd.Write(*config)
	if err != nil {
		return err
	}
	if info.Data == nil {
		info.Data = map[string]string{}
	}
	info.Data[bootstraptoken.ClusterInfoKey] = string(content)
	return nil
}

// update writes cluster-info, unless it is as before.
func update(ctx context.Context, client kubernetes.Interface, have, next *v1.ConfigMap) error {
	if maps.Equal(have.Data, next.Data) && maps.Equal(have.Annotations, next.Annotations) {
		return nil
	}
	_, err := client.CoreV1().ConfigMaps(metav1.NamespacePublic).Update(ctx, next, metav1.UpdateOptions{})
	return err
}

func (c *Cluster) entry() *clientcmdapi.Cluster {
	return &clientcmdapi.Cluster{Server: c.Server, CertificateAuthorityData: c.Authority}
}

// configIn returns the kubeconfig in cluster-info, an empty one if it cannot be read: then it
// is written anew.
func configIn(info *v1.ConfigMap) *clientcmdapi.Config {
	config, err := clientcmd.Load([]byte(info.Data[bootstraptoken.ClusterInfoKey]))
	if err != nil {
		return clientcmdapi.NewConfig()
	}
	return config
}

// serverIn returns the URL in cluster-info, or "" if it has none.
func serverIn(info *v1.ConfigMap) string {
	if entry := configIn(info).Clusters[""]; entry != nil {
		return entry.Server
	}
	return ""
}

// authorityIn returns the certificates in cluster-info, or nil.
func authorityIn(info *v1.ConfigMap) []byte {
	if entry := configIn(info).Clusters[""]; entry != nil {
		return entry.CertificateAuthorityData
	}
	return nil
}

// endpoint returns the URL of the API server at the first of its addresses.
func endpoint(ctx context.Context, client kubernetes.Interface) (string, error) {
	list, err := client.DiscoveryV1().EndpointSlices(metav1.NamespaceDefault).List(ctx, metav1.ListOptions{LabelSelector: discoveryv1.LabelServiceName + "=kubernetes"})
	if err != nil {
		return "", err
	}
	var urls []string
	for _, slice := range list.Items {
		for _, port := range slice.Ports {
			for _, e := range slice.Endpoints {
				if port.Port != nil && len(e.Addresses) > 0 {
					urls = append(urls, "https://"+net.JoinHostPort(e.Addresses[0], strconv.Itoa(int(*port.Port))))
				}
			}
		}
	}
	if len(urls) == 0 {
		return "", errors.New("the Service default/kubernetes has no endpoint: say at which address nodes reach the API server")
	}
	return slices.Min(urls), nil
}

// allow creates the roles and bindings that are missing.
func allow(ctx context.Context, client kubernetes.Interface) error {
	rbac := client.RbacV1()
	var all []error
	created := func(kind, name string, err error) {
		if err != nil && !apierrors.IsAlreadyExists(err) {
			all = append(all, fmt.Errorf("create %s %s: %w", kind, name, err))
		}
	}
	for _, role := range clusterRoles() {
		_, err := rbac.ClusterRoles().Create(ctx, role, metav1.CreateOptions{})
		created("ClusterRole", role.Name, err)
	}
	for _, binding := range clusterRoleBindings() {
		_, err := rbac.ClusterRoleBindings().Create(ctx, binding, metav1.CreateOptions{})
		created("ClusterRoleBinding", binding.Name, err)
	}
	for _, made := range []func() (*rbacv1.Role, *rbacv1.RoleBinding){readInfo, readNetwork, readPools} {
		role, binding := made()
		_, err := rbac.Roles(role.Namespace).Create(ctx, role, metav1.CreateOptions{})
		created("Role", role.Name, err)
		_, err = rbac.RoleBindings(binding.Namespace).Create(ctx, binding, metav1.CreateOptions{})
		created("RoleBinding", binding.Name, err)
	}
	return errors.Join(all...)
}

const (
	// getNodes lets nodes that join see whether their name is taken.
	getNodes = "kubeadm:get-nodes"
	// selfServing lets nodes have the requests of serving certificates for their own
	// addresses approved, and servingAddresses lets the controller that approves them
	// see which those are.
	selfServing      = "coracle:node-autoapprove-serving"
	servingAddresses = "coracle:serving-addresses"
	// nodesGroup is the group of all nodes.
	nodesGroup = "system:nodes"
)

func clusterRoles() []*rbacv1.ClusterRole {
	role := func(name string, rules ...rbacv1.PolicyRule) *rbacv1.ClusterRole {
		return &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: name}, Rules: rules}
	}
	rule := func(verbs []string, group, resource string, names ...string) rbacv1.PolicyRule {
		return rbacv1.PolicyRule{Verbs: verbs, APIGroups: []string{group}, Resources: []string{resource}, ResourceNames: names}
	}
	get, list := []string{"get"}, []string{"list"}
	return []*rbacv1.ClusterRole{
		role(getNodes, rule(get, "", "nodes")),
		role(selfServing, rule([]string{"create"}, "certificates.k8s.io", "certificatesigningrequests/selfnodeserver")),
		role(servingAddresses, rule(list, "", "nodes"), rule(get, "", "services", "kubernetes"), rule(get, "", "configmaps", bootstraptoken.ClusterInfo),
			rule(list, discoveryv1.GroupName, "endpointslices"), rule(list, "coordination.k8s.io", "leases")),
	}
}

// clusterRoleBindings returns kubeadm's bindings, and those with which a node does
// all of its work with the identity of its kubelet: it approves its serving
// certificate, and reads what its proxy, its routes and its network policies need.
func clusterRoleBindings() []*rbacv1.ClusterRoleBinding {
	const requests = "system:certificates.k8s.io:certificatesigningrequests:"
	bind := func(name, role string, subject rbacv1.Subject) *rbacv1.ClusterRoleBinding {
		return &rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
			Subjects:   []rbacv1.Subject{subject},
		}
	}
	joining, nodes := group(bootstraptoken.DefaultGroup), group(nodesGroup)
	approver := rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: metav1.NamespaceSystem, Name: "certificate-controller"}
	return []*rbacv1.ClusterRoleBinding{
		bind(getNodes, getNodes, joining),
		bind("kubeadm:kubelet-bootstrap", "system:node-bootstrapper", joining),
		bind("kubeadm:node-autoapprove-bootstrap", requests+"nodeclient", joining),
		bind("kubeadm:node-autoapprove-certificate-rotation", requests+"selfnodeclient", nodes),
		bind(selfServing, selfServing, nodes),
		bind("coracle:serving-approver", "system:certificates.k8s.io:kubelet-serving-approver", approver),
		bind(servingAddresses, servingAddresses, approver),
		bind("coracle:node-proxier", "system:node-proxier", nodes),
		bind("coracle:node-network-policy", "system:coracle:network-policy", nodes),
	}
}

// readInfo returns what lets anybody read cluster-info, which has no secrets.
func readInfo() (*rbacv1.Role, *rbacv1.RoleBinding) {
	anybody := rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: "system:anonymous"}
	return reader(metav1.ObjectMeta{Name: "kubeadm:bootstrap-signer-clusterinfo", Namespace: metav1.NamespacePublic},
		"configmaps", bootstraptoken.ClusterInfo, []string{"get"}, anybody)
}

// reader returns a role that lets subjects read one object of the core group in the
// namespace of the role, and its binding.
func reader(meta metav1.ObjectMeta, resource, name string, verbs []string, subjects ...rbacv1.Subject) (*rbacv1.Role, *rbacv1.RoleBinding) {
	return &rbacv1.Role{
			ObjectMeta: meta,
			Rules:      []rbacv1.PolicyRule{{Verbs: verbs, APIGroups: []string{""}, Resources: []string{resource}, ResourceNames: []string{name}}},
		}, &rbacv1.RoleBinding{
			ObjectMeta: meta,
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: meta.Name},
			Subjects:   subjects,
		}
}

func group(name string) rbacv1.Subject {
	return rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind, Name: name}
}

// Kubeconfig returns a kubeconfig with a token, for --bootstrap-kubeconfig of a
// kubelet. Its names are those of kubeadm's bootstrap-kubelet.conf.
func (c *Cluster) Kubeconfig(token bootstraptoken.Token) ([]byte, error) {
	const cluster, user = "kubernetes", "tls-bootstrap-token-user"
	name := user + "@" + cluster
	return clientcmd.Write(clientcmdapi.Config{
		Clusters:       map[string]*clientcmdapi.Cluster{cluster: c.entry()},
		AuthInfos:      map[string]*clientcmdapi.AuthInfo{user: {Token: token.String()}},
		Contexts:       map[string]*clientcmdapi.Context{name: {Cluster: cluster, AuthInfo: user}},
		CurrentContext: name,
	})
}

var hashPattern = regexp.MustCompile(`^sha256:[0-9a-f]{64}$`)

// IsAuthorityHash reports whether text has the form of those of AuthorityHashes.
func IsAuthorityHash(text string) bool { return hashPattern.MatchString(text) }

// AuthorityHashes returns the hash of each certificate of the authority as
// kubeadm's --discovery-token-ca-cert-hash has it: "sha256:" and the hash of its
// public key (RFC 7469).
func (c *Cluster) AuthorityHashes() ([]string, error) {
	var hashes []string
	for rest := bytes.TrimSpace(c.Authority); len(rest) > 0; {
		block, more := pem.Decode(rest)
		if block == nil {
			return nil, errors.New("the authority is not in PEM")
		}
		certificate, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, fmt.Errorf("read the authority: %w", err)
		}
		hashes = append(hashes, fmt.Sprintf("sha256:%x", sha256.Sum256(certificate.RawSubjectPublicKeyInfo)))
		rest = bytes.TrimSpace(more)
	}
	return hashes, nil
}
