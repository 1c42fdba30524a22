package host

import (
	"encoding/json"
	"fmt"
	"net/url"
	"strconv"
	"strings"
)

// Settings of version 1 and records of that time had one flat object. The
// functions of this file move the values to where they are now.

// argumentFields are the fields with components' arguments, which had the same
// names in the flat object.
func argumentFields() []string {
	return []string{"apiserverArgs", "controllerManagerArgs", "schedulerArgs", "kubeletArgs", "proxyArgs", "etcdArgs"}
}

// upgradeSettings turns settings of version 1 into the current version.
func upgradeSettings(raw []byte) ([]byte, error) {
	moves := map[string]string{
		"told": "setFlags", "name": "options.name", "v": "options.logLevels", "bindAddress": "options.bindAddress", "ports": "options.ports",
		"serviceCIDR": "options.serviceCIDR", "clusterCIDR": "options.clusterCIDR", "nodePorts": "options.nodePorts", "nodeName": "options.nodeName",
		"etcdServers": "options.etcd.servers", "bundle": "options.node.bundleDir", "containerRuntimeEndpoint": "options.node.containerRuntimeEndpoint",
		"cniConfDir": "options.node.cniConfDir", "nftTable": "options.node.nftTable", "cgroupRoot": "options.node.cgroupRoot",
	}
	for _, field := range argumentFields() {
		moves[field] = "options." + field
	}
	object, err := move(raw, moves)
	if err != nil {
		return nil, err
	}
	object["version"] = settingsVersion
	return json.Marshal(object)
}

// upgradeRecord returns a flat record in its current form, and any other
// record as it is.
func upgradeRecord(raw []byte) ([]byte, error) {
	var flat struct {
		Options     json.RawMessage
		Server      string
		ControlOnly bool
	}
	if err := json.Unmarshal(raw, &flat); err != nil || flat.Options != nil {
		return raw, err
	}
	object, err := move(raw, map[string]string{
		"name": "options.name", "dataDir": "options.dataDir", "serviceCIDR": "options.serviceCIDR", "clusterCIDR": "options.clusterCIDR",
		"nodePorts": "options.nodePorts", "etcdServers": "options.etcd.servers", "bundleDir": "options.node.bundleDir",
		"externalCRI": "options.node.containerRuntimeEndpoint", "cniConfDir": "options.node.cniConfDir",
		"nftTable": "options.node.nftTable", "cgroupRoot": "options.node.cgroupRoot",
	})
	if err != nil {
		return nil, err
	}
	delete(object, "controlOnly")
	if object["nodes"] = 1; flat.ControlOnly {
		object["nodes"] = 0
	}
	server, err := url.Parse(flat.Server)
	if err != nil {
		return nil, err
	}
	options := nested(object, "options")
	options["logLevels"] = "1"
	if options["bindAddress"] = "0.0.0.0"; server.Hostname() != "127.0.0.1" && server.Hostname() != "" {
		options["bindAddress"] = server.Hostname()
	}
	if flat.Server != "" {
		port, err := strconv.Atoi(server.Port())
		if err != nil {
			return nil, fmt.Errorf("the port of the server %q: %w", flat.Server, err)
		}
		nested(options, "ports")["secure"] = port
	}
	return json.Marshal(object)
}

// move decodes a JSON object and moves the values of some of its keys to other
// paths, such as options.node.nftTable.
func move(raw []byte, paths map[string]string) (map[string]any, error) {
	var flat map[string]json.RawMessage
	if err := json.Unmarshal(raw, &flat); err != nil {
		return nil, err
	}
	object := map[string]any{}
	for key, value := range flat {
		path := []string{key}
		if to, ok := paths[key]; ok {
			path = strings.Split(to, ".")
		}
		into, last := object, len(path)-1
		for _, name := range path[:last] {
			into = nested(into, name)
		}
		into[path[last]] = value
	}
	return object, nil
}

// nested returns the object below a key, which it adds if it is missing.
func nested(object map[string]any, key string) map[string]any {
	inner, ok := object[key].(map[string]any)
	if !ok {
		inner = map[string]any{}
		object[key] = inner
	}
	return inner
}
