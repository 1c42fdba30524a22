package core

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// validateVolumes checks the pod's volumes and remembers the good ones by
// name for the containers.
func (r *podRules) validateVolumes(at *field.Path) field.ErrorList {
	var errs field.ErrorList
	r.volumes = map[string]*corev1.VolumeSource{}
	made := r.madeClaims()
	for i := range r.spec.Volumes {
		v, at := &r.spec.Volumes[i], at.Index(i)
		found := r.validateVolumeSource(&v.VolumeSource, v.Name, at)
		if v.Name == "" {
			found = append(found, field.Required(at.Child("name"), ""))
		} else {
			found = append(found, invalid(at.Child("name"), v.Name, utilvalidation.IsDNS1123Label(v.Name))...)
		}
		if r.volumes[v.Name] != nil {
			found = append(found, field.Duplicate(at.Child("name"), v.Name))
		}
		if len(found) == 0 {
			r.volumes[v.Name] = &v.VolumeSource
		} else {
			errs = append(errs, found...)
		}
		if claim := v.PersistentVolumeClaim; claim != nil && made[claim.ClaimName] {
			errs = append(errs, field.Invalid(at.Child("persistentVolumeClaim", "claimName"), claim.ClaimName,
				"must not reference a PVC that gets created for an ephemeral volume"))
		}
	}
	return errs
}

// madeClaims are the names of the claims that are made for the pod.
func (r *podRules) madeClaims() map[string]bool {
	if r.metadata == nil || r.metadata.Name == "" {
		return nil
	}
	made := map[string]bool{}
	for i := range r.spec.Volumes {
		if r.spec.Volumes[i].Ephemeral != nil {
			made[r.metadata.Name+"-"+r.spec.Volumes[i].Name] = true
		}
	}
	return made
}

// A volumeKind is one kind of volume source: what it is called, and what
// makes it valid.
type volumeKind struct {
	name     string
	set      bool
	validate func(at *field.Path) field.ErrorList
}

// volumeOrder is the order in which the kinds are looked for: the first one
// that is set is what the volume is, any other one is too many.
var volumeOrder = []string{"emptyDir", "hostPath", "gitRepo", "gcePersistentDisk", "awsElasticBlockStore", "secret", "nfs",
	"iscsi", "glusterfs", "flocker", "persistentVolumeClaim", "rbd", "cinder", "cephfs", "quobyte", "downwardAPI", "fc",
	"flexVolume", "configMap", "azureFile", "vsphereVolume", "photonPersistentDisk", "portworxVolume", "azureDisk",
	"storageos", "projected", "scaleIO", "csi", "ephemeral", "image"}

// oneTooMany says that a volume is of another kind already. Clients know two
// of the names in another spelling.
func (k volumeKind) oneTooMany(at *field.Path) *field.Error {
	name := k.name
	switch name {
	case "cephfs":
		name = "cephFS"
	case "downwardAPI":
		name = "downwarAPI"
	case "persistentDisk":
		name = "gcePersistentDisk"
	}
	return field.Forbidden(at.Child(name), "may not specify more than 1 volume type")
}

func (r *podRules) validateVolumeSource(v *corev1.VolumeSource, name string, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	found := 0
	kinds := r.apiVolumeKinds(v)
	if fromStorage(v) {
		kinds = append(kinds, storageVolumeKinds(v)...)
	}
	kinds = slices.DeleteFunc(kinds, func(k volumeKind) bool { return !k.set })
	slices.SortStableFunc(kinds, func(a, b volumeKind) int {
		return slices.Index(volumeOrder, a.name) - slices.Index(volumeOrder, b.name)
	})
	for _, kind := range kinds {
		if found++; found > 1 {
			errs = append(errs, kind.oneTooMany(at))
			continue
		}
		if kind.validate != nil {
			errs = append(errs, kind.validate(at.Child(kind.name))...)
		}
	}
	if v.Ephemeral != nil {
		errs = append(errs, r.validateEphemeralName(name, at)...)
	}
	if found == 0 {
		errs = append(errs, field.Required(at, "must specify a volume type"))
	}
	return errs
}

// fromStorage says that a volume is, at least, of one of the storageVolumeKinds.
func fromStorage(v *corev1.VolumeSource) bool {
	rest := *v
	rest.EmptyDir, rest.HostPath, rest.GitRepo, rest.Secret, rest.PersistentVolumeClaim = nil, nil, nil, nil, nil
	rest.DownwardAPI, rest.ConfigMap, rest.Projected, rest.Ephemeral, rest.Image = nil, nil, nil, nil, nil
	return rest != (corev1.VolumeSource{})
}

// apiVolumeKinds are the sources that are made of API objects or of the node.
func (r *podRules) apiVolumeKinds(v *corev1.VolumeSource) []volumeKind {
	return []volumeKind{
		{"emptyDir", v.EmptyDir != nil, func(at *field.Path) field.ErrorList {
			if v.EmptyDir.SizeLimit != nil && v.EmptyDir.SizeLimit.Sign() < 0 {
				return field.ErrorList{field.Forbidden(at.Child("sizeLimit"), "SizeLimit field must be a valid resource quantity")}
			}
			return nil
		}},
		{"hostPath", v.HostPath != nil, func(at *field.Path) field.ErrorList { return validateHostPath(v.HostPath, at) }},
		{"gitRepo", v.GitRepo != nil, func(at *field.Path) field.ErrorList {
			errs := required(v.GitRepo.Repository, at.Child("repository"))
			return append(errs, validateDescendingPath(v.GitRepo.Directory, at.Child("directory"))...)
		}},
		{"secret", v.Secret != nil, func(at *field.Path) field.ErrorList {
			errs := required(v.Secret.SecretName, at.Child("secretName"))
			return append(errs, validateFiles(v.Secret.DefaultMode, v.Secret.Items, at)...)
		}},
		{"persistentVolumeClaim", v.PersistentVolumeClaim != nil, func(at *field.Path) field.ErrorList {
			return required(v.PersistentVolumeClaim.ClaimName, at.Child("claimName"))
		}},
		{"downwardAPI", v.DownwardAPI != nil, func(at *field.Path) field.ErrorList {
			errs := validateMode(v.DownwardAPI.DefaultMode, at.Child("defaultMode"))
			for i := range v.DownwardAPI.Items {
				errs = append(errs, validateDownwardFile(&v.DownwardAPI.Items[i], at)...)
			}
			return errs
		}},
		{"configMap", v.ConfigMap != nil, func(at *field.Path) field.ErrorList {
			errs := required(v.ConfigMap.Name, at.Child("name"))
			return append(errs, validateFiles(v.ConfigMap.DefaultMode, v.ConfigMap.Items, at)...)
		}},
		{"projected", v.Projected != nil, func(at *field.Path) field.ErrorList { return r.validateProjected(v.Projected, at) }},
		{"ephemeral", v.Ephemeral != nil, func(at *field.Path) field.ErrorList {
			return validateEphemeralClaim(v.Ephemeral, at)
		}},
		{"image", v.Image != nil, func(at *field.Path) field.ErrorList {
			var errs field.ErrorList
			if r.metadata != nil {
				errs = required(v.Image.Reference, at.Child("reference"))
			}
			return append(errs, validatePullPolicy(v.Image.PullPolicy, at.Child("pullPolicy"))...)
		}},
	}
}

// validateEphemeralName checks the name of the claim that is made for the pod.
func (r *podRules) validateEphemeralName(volume string, at *field.Path) field.ErrorList {
	if r.metadata == nil || r.metadata.Name == "" || volume == "" {
		return nil
	}
	claim := r.metadata.Name + "-" + volume
	var errs field.ErrorList
	for _, msg := range nameIsDNSSubdomain(claim) {
		errs = append(errs, field.Invalid(at.Child("name"), volume, fmt.Sprintf("PVC name %q: %v", claim, msg)))
	}
	return errs
}

func validateMode(mode *int32, at *field.Path) field.ErrorList {
	if mode == nil || *mode >= 0 && *mode <= 0o777 {
		return nil
	}
	return field.ErrorList{field.Invalid(at, *mode, invalidFileMode)}
}

// validateFiles checks a volume's files, made of keys.
func validateFiles(mode *int32, items []corev1.KeyToPath, at *field.Path) field.ErrorList {
	errs := validateMode(mode, at.Child("defaultMode"))
	for i := range items {
		errs = append(errs, validateKeyToPath(&items[i], at.Child("items").Index(i))...)
	}
	return errs
}

func validateKeyToPath(item *corev1.KeyToPath, at *field.Path) field.ErrorList {
	errs := required(item.Key, at.Child("key"))
	errs = append(errs, required(item.Path, at.Child("path"))...)
	errs = append(errs, validateFileName(item.Path, at.Child("path"))...)
	if item.Mode != nil && (*item.Mode > 0o777 || *item.Mode < 0) {
		errs = append(errs, field.Invalid(at.Child("mode"), *item.Mode, invalidFileMode))
	}
	return errs
}

// validateFileName checks the path of a file that the kubelet writes, which
// keeps names that begin with two dots for itself.
func validateFileName(name string, at *field.Path) field.ErrorList {
	errs := validateDescendingPath(name, at)
	if strings.HasPrefix(name, "..") && !strings.HasPrefix(name, "../") {
		errs = append(errs, field.Invalid(at, name, "must not start with '..'"))
	}
	return errs
}

var hostPathTypes = sets.New(corev1.HostPathUnset, corev1.HostPathDirectoryOrCreate, corev1.HostPathDirectory,
	corev1.HostPathFileOrCreate, corev1.HostPathFile, corev1.HostPathSocket, corev1.HostPathCharDev, corev1.HostPathBlockDev)

func validateHostPath(h *corev1.HostPathVolumeSource, at *field.Path) field.ErrorList {
	if h.Path == "" {
		return field.ErrorList{field.Required(at.Child("path"), "")}
	}
	errs := validateNoBacksteps(h.Path, at.Child("path"))
	if h.Type != nil && !hostPathTypes.Has(*h.Type) {
		errs = append(errs, field.NotSupported(at.Child("type"), h.Type, sets.List(hostPathTypes)))
	}
	return errs
}

func validateDownwardFile(f *corev1.DownwardAPIVolumeFile, at *field.Path) field.ErrorList {
	errs := required(f.Path, at.Child("path"))
	errs = append(errs, validateFileName(f.Path, at.Child("path"))...)
	switch {
	case f.FieldRef != nil:
		errs = append(errs, validateFieldRef(f.FieldRef, volumeFields, at.Child("fieldRef"))...)
		if f.ResourceFieldRef != nil {
			errs = append(errs, field.Invalid(at, "resource", "fieldRef and resourceFieldRef can not be specified simultaneously"))
		}
	case f.ResourceFieldRef != nil:
		errs = append(errs, validateResourceFieldRef(f.ResourceFieldRef, true, at.Child("resourceFieldRef"))...)
	default:
		errs = append(errs, field.Required(at, "one of fieldRef and resourceFieldRef is required"))
	}
	if f.Mode != nil && (*f.Mode > 0o777 || *f.Mode < 0) {
		errs = append(errs, field.Invalid(at.Child("mode"), *f.Mode, invalidFileMode))
	}
	return errs
}
