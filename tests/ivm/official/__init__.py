"""Row changes of the official engine on random worlds, recorded, and compared with ours."""
