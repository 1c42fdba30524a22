package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"

	"github.com/coracle-io/coracle/internal/flagvalue"
	"github.com/coracle-io/coracle/internal/host"
	"github.com/coracle-io/coracle/internal/nodejoin"
	"github.com/coracle-io/coracle/internal/pki"
	"github.com/coracle-io/coracle/internal/store/etcd"
)

// errOnlyServer is the error of a server without which its cluster has none.
var errOnlyServer = errors.New("it is the only server of the cluster")

// leaveAsServer removes the server that this machine is from its cluster.
func (f *leaveFlags) leaveAsServer(ctx context.Context, registry host.Registry, rec host.Record, settings host.Settings) error {
	node := settings.Options.NodeName
	what := fmt.Sprintf("Server %s leaves the cluster: its pods are evicted, and its containers, their volumes, its copy of the objects and %s are deleted permanently.", node, rec.DataDir)
	if err := f.agree(ctx, rec, "server "+node, what); err != nil {
		return err
	}
	err := f.withdrawServer(ctx, rec, settings)
	left := ""
	switch {
	case errors.Is(err, errOnlyServer): // also with --force: all objects would be gone
		return fmt.Errorf("server %s was not removed: %w: coracle down --name=%s removes it with all objects", node, err, rec.Name)
	case err != nil && !f.force:
		return fmt.Errorf("server %s was not removed: %w; try again, or remove it without that with --force", node, err)
	case err != nil:
		fmt.Fprintf(os.Stderr, "coracle: warning: %v\n", err)
		left = stillCounted(settings)
	}
	if err := down(ctx, registry, rec, true); err != nil {
		return err
	}
	fmt.Print(left)
	return nil
}

// withdrawServer evicts the pods of the server's nodes, deletes these, and removes the
// server's member from etcd.
func (f *leaveFlags) withdrawServer(ctx context.Context, rec host.Record, settings host.Settings) error {
	if !rec.Running() {
		return fmt.Errorf("it does not run, so that the others would count its member of etcd: start it with coracle start %s", rec.Name)
	}
	client, err := adminClient(rec, answerTimeout)
	if err != nil {
		return err
	}
	network, err := nodejoin.ReadNetwork(ctx, client)
	if err != nil {
		return err
	}
	members, err := dialOthers(rec, settings, &network)
	if err != nil {
		return err
	}
	defer func() { _ = members.Close() }()
	draining, cancel := context.WithTimeout(ctx, f.timeout)
	defer cancel()
	id, others, err := members.Find(draining, memberName(settings))
	if err != nil {
		return err
	}
	if id != 0 && others == 0 {
		return errOnlyServer
	}
	if err := withdrawNodes(draining, client, settings); err != nil {
		return err
	}
	if id == 0 { // it was removed before
		return nil
	}
	if err := network.Publish(ctx, client); err != nil {
		return err
	}
	removing, cancelRemoving := context.WithTimeout(ctx, f.timeout)
	defer cancelRemoving()
	return members.Remove(removing, id)
}

// dialOthers connects to the etcd of the other servers, which network names, and takes
// this server's URL from those. What another member answers, it has done itself: it
// does not wait for this one any more, whatever happens here, and this one needs no
// vote. dialOthers connects to this server's own member if no others listen for clients
// of the cluster's authority.
func dialOthers(rec host.Record, settings host.Settings, network *nodejoin.Network) (*etcd.Members, error) {
	o := settings.Options
	urls := slices.DeleteFunc(strings.Split(network.Etcd, ","), func(url string) bool {
		return url == "" || url == flagvalue.Last(o.EtcdArgs, "listen-client-urls")
	})
	if len(urls) == 0 || flagvalue.Last(o.EtcdArgs, "trusted-ca-file") != "" {
		return dialOwn(settings)
	}
	network.Etcd = strings.Join(urls, ",")
	keys := nodejoin.Keys{}
	for _, name := range []string{pki.EtcdAuthority + ".crt", pki.EtcdAuthority + ".key"} {
		content, err := os.ReadFile(filepath.Join(keysDirOf(rec, o), name))
		if err != nil {
			return nil, err
		}
		keys[name] = content
	}
	return dialEtcd(urls, keys)
}

// dialOwn connects to the member of etcd of a cluster on this machine.
func dialOwn(settings host.Settings) (*etcd.Members, error) {
	return etcd.DialMembers(etcd.Endpoints{URLs: []string{"unix://" + host.EtcdSocket(settings.RunDirectory())}}, klog.Background())
}

// memberName returns the name of the member of etcd of a cluster on this machine.
func memberName(settings host.Settings) string {
	return cmp.Or(flagvalue.Last(settings.Options.EtcdArgs, "name"), etcd.DefaultName)
}

// withdrawNodes evicts the pods of the nodes of this machine, and deletes the nodes.
func withdrawNodes(ctx context.Context, client kubernetes.Interface, settings host.Settings) error {
	for _, node := range settings.ClusterOptions().NodeNames() {
		fmt.Printf("Evicting the pods of node %s.\n", node)
		if err := nodejoin.Drain(ctx, client, node); err != nil {
			return err
		}
		if err := deleteNode(ctx, client, node); err != nil {
			return err
		}
	}
	return nil
}

// deleteNode deletes a node. It is no error if there is none.
func deleteNode(ctx context.Context, client kubernetes.Interface, node string) error {
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	if err := client.CoreV1().Nodes().Delete(ctx, node, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("delete node %s: %w", node, err)
	}
	return nil
}

// leftBehind returns what the user has to do on other servers when the cluster on this
// machine was removed without leaving them, or "" if there are none.
func leftBehind(ctx context.Context, rec host.Record) string {
	settings, err := host.ReadSettings(rec.DataDir)
	if err != nil || !settings.HoldsMember() && flagvalue.Last(settings.Options.EtcdArgs, "initial-cluster-state") != "existing" {
		return ""
	}
	if rec.Running() && alone(ctx, settings) {
		return ""
	}
	return stillCounted(settings)
}

// alone reports whether no other member of etcd has a vote. It is false if that is not
// known within answerTimeout.
func alone(ctx context.Context, settings host.Settings) bool {
	members, err := dialOwn(settings)
	if err != nil {
		return false
	}
	defer func() { _ = members.Close() }()
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	_, others, err := members.Find(ctx, memberName(settings))
	return err == nil && others == 0
}

// stillCounted returns the lines that say how other servers forget the one with these
// settings.
func stillCounted(settings host.Settings) string {
	text := fmt.Sprintf("Other servers of the cluster, if there are any, still wait for its member of etcd. Remove it there, with the NAME that coracle list shows:\n  coracle etcdctl --name=NAME member list\n  coracle etcdctl --name=NAME member remove ID (of the one called %s)\n", memberName(settings))
	if nodes := settings.ClusterOptions().NodeNames(); len(nodes) > 0 {
		text += fmt.Sprintf("  coracle kubectl delete node %s\n", strings.Join(nodes, " "))
	}
	return text
}
