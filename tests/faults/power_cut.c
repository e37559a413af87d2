/* Loaded before a program (LD_PRELOAD), keeps a copy of what the program has synced below one directory.

   A power cut leaves of a file what fsync or fdatasync was last called on. $KEPT_OF is the directory that is watched.
   $KEPT_IN holds `files/<inode>` with the content at the last sync, and `names/<name>` with the inode that the name
   stands for: a name lasts when its file is synced or its directory is, and goes when the directory is synced. One
   level of directories below is followed, with `+` for the slash. Nothing is really synced, so that this is fast.
*/
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

static int put(const char *path, const char *text) {
    char draft[PATH_MAX];
    snprintf(draft, sizeof draft, "%s.draft", path);
    int to = open(draft, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    if (to < 0) return -1;
    int wrong = write(to, text, strlen(text)) < 0;
    close(to);
    return wrong ? -1 : rename(draft, path);
}

static int copy(int from, const char *path) {
    char draft[PATH_MAX], part[1 << 16];
    snprintf(draft, sizeof draft, "%s.draft", path);
    int to = open(draft, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    if (to < 0) return -1;
    off_t at = 0;
    ssize_t size;
    while ((size = pread(from, part, sizeof part, at)) > 0) {
        if (write(to, part, size) != size) { close(to); return -1; }
        at += size;
    }
    close(to);
    return size < 0 ? -1 : rename(draft, path);
}

static void key_of(char *key, const char *relative) {
    snprintf(key, NAME_MAX, "%s", relative);
    for (char *each = key; *each; each++) if (*each == '/') *each = '+';
}

static void note_name(const char *kept, const char *relative, ino_t inode) {
    char key[NAME_MAX], path[PATH_MAX], text[32];
    key_of(key, relative);
    snprintf(path, sizeof path, "%s/names/%s", kept, key);
    snprintf(text, sizeof text, "%lu", (unsigned long) inode);
    put(path, text);
}

static void note_directory(const char *kept, const char *root, const char *relative) {
    char path[PATH_MAX], prefix[NAME_MAX], other[PATH_MAX];
    struct stat found;
    snprintf(path, sizeof path, "%s/%s", root, relative);
    DIR *folder = opendir(path);
    if (!folder) return;
    for (struct dirent *each; (each = readdir(folder));) {
        snprintf(other, sizeof other, "%s%s%s", relative, *relative ? "/" : "", each->d_name);
        snprintf(path, sizeof path, "%s/%s", root, other);
        if (!lstat(path, &found) && S_ISREG(found.st_mode)) note_name(kept, other, found.st_ino);
    }
    closedir(folder);
    key_of(prefix, relative);
    if (*prefix) strncat(prefix, "+", NAME_MAX - strlen(prefix) - 1);
    snprintf(path, sizeof path, "%s/names", kept);
    if (!(folder = opendir(path))) return;
    for (struct dirent *each; (each = readdir(folder));) {
        if (each->d_name[0] == '.' && (!each->d_name[1] || each->d_name[1] == '.')) continue;
        if (strncmp(each->d_name, prefix, strlen(prefix)) || strchr(each->d_name + strlen(prefix), '+')) continue;
        snprintf(path, sizeof path, "%s/%s%s%s", root, relative, *relative ? "/" : "", each->d_name + strlen(prefix));
        if (lstat(path, &found)) {
            snprintf(path, sizeof path, "%s/names/%s", kept, each->d_name);
            unlink(path);
        }
    }
    closedir(folder);
}

static int keep(int descriptor) {
    const char *root = getenv("KEPT_OF"), *kept = getenv("KEPT_IN");
    char link[64], path[PATH_MAX], lock_path[PATH_MAX];
    struct stat found;
    if (!root || !kept) return 0;
    snprintf(link, sizeof link, "/proc/self/fd/%d", descriptor);
    ssize_t size = readlink(link, path, sizeof path - 1);
    if (size < 0 || fstat(descriptor, &found)) return -1;
    path[size] = 0;
    if (strncmp(path, root, strlen(root))) return 0;
    const char *relative = path + strlen(root);
    if (*relative == '/') relative++;
    snprintf(lock_path, sizeof lock_path, "%s/lock", kept);
    int lock = open(lock_path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (lock < 0) return -1;
    flock(lock, LOCK_EX);
    int result = 0;
    if (S_ISDIR(found.st_mode)) {
        note_directory(kept, root, relative);
    } else if (S_ISREG(found.st_mode)) {
        snprintf(lock_path, sizeof lock_path, "%s/files/%lu", kept, (unsigned long) found.st_ino);
        /* Opened anew: the descriptor may be for writing only. */
        int from = open(link, O_RDONLY | O_CLOEXEC);
        result = from < 0 ? -1 : copy(from, lock_path);
        if (from >= 0) close(from);
        if (!strstr(relative, " (deleted)")) note_name(kept, relative, found.st_ino);
    }
    close(lock);
    return result;
}

int fsync(int descriptor) { return keep(descriptor); }
int fdatasync(int descriptor) { return keep(descriptor); }
